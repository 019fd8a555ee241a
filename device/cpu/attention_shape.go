package cpu

import (
	"cmp"
	"fmt"
	"slices"

	"mt/device/cpu/vec"
	"mt/device/op"
)

// Attention works on one sequence and one key/value head at a time, with all query heads of its group, which share that
// key/value head. Keys are packed in blocks for the tiles of package vec. Queries come in strips of at most stripRows.
// Memory for scores holds only one strip by one block.
const (
	keyBlock    = 256
	stripRows   = 14
	scoreStride = keyBlock + 16 // not a power of two, so rows fall into different cache sets
)

// attnJob is the part of attention that one worker computes at a time: one key/value head of one sequence, with a range
// of queries or of keys.
type attnJob struct {
	q, k   int // the first row of the sequence's queries and of its keys
	nq, nk int // the sequence's numbers of queries and keys
	kv     int // the key/value head
	from,
	to int // queries of this job, relative to the sequence
	keyFrom,
	keyTo int // keys of this job, relative to the sequence
}

// shift returns the position of the sequence's first query among its keys. If there are more keys
// than queries, as in generation, the queries are at the last positions.
func (j *attnJob) shift() int { return j.nk - j.nq }

// cost returns about twice the number of (query, key) pairs of the job. It leaves out pairs that
// the causal mask excludes, but counts pairs outside a sliding window.
func (j *attnJob) cost() int {
	first := max(j.from, j.keyFrom-j.shift()) // earlier queries attend to none of the keys
	if first >= j.to {
		return 0
	}
	seen := min(2*j.shift()+first+j.to, 2*j.keyTo) - 2*j.keyFrom
	return (j.to - first) * max(1, seen)
}

// jobList holds the jobs of one operation, the most expensive first. A stream reuses its memory for
// the next operation.
type jobList []attnJob

// list makes the jobs of one operation: it cuts every sequence into ranges of at most block queries. block 0: each
// whole sequence is one job. It returns an error if the bounds of the sequences are invalid.
func (l *jobList) list(a *op.AttentionShape, block int) error {
	jobs := (*l)[:0]
	cuQ, cuK := i32s(a.CuQ, a.Seqs+1), i32s(a.CuK, a.Seqs+1)
	if err := ascending("CuQ", cuQ, a.TQ); err != nil {
		return err
	}
	if err := ascending("CuK", cuK, a.TK); err != nil {
		return err
	}
	for i := range a.Seqs {
		j := sequence(cuQ, cuK, i)
		if j.nk < j.nq {
			return fmt.Errorf("sequence %d has %d queries and %d keys", i, j.nq, j.nk)
		}
		pieces := min(1, j.nk)
		if block > 0 {
			pieces = (j.nq + block - 1) / block
		}
		for p := range pieces {
			j.from, j.to = j.nq*p/pieces, j.nq*(p+1)/pieces
			jobs = j.eachHead(jobs, a.KVHeads)
		}
	}
	l.set(jobs)
	return nil
}

// listKeys makes jobs for the gradients of keys and values: each covers one block of keys of a
// sequence. The caller must have called list first, because list checks the bounds of the
// sequences.
func (l *jobList) listKeys(a *op.AttentionShape) {
	jobs := (*l)[:0]
	cuQ, cuK := i32s(a.CuQ, a.Seqs+1), i32s(a.CuK, a.Seqs+1)
	for i := range a.Seqs {
		j := sequence(cuQ, cuK, i)
		for k := 0; k < j.nk; k += keyBlock {
			j.keyFrom, j.keyTo = k, min(j.nk, k+keyBlock)
			jobs = j.eachHead(jobs, a.KVHeads)
		}
	}
	l.set(jobs)
}

// sequence returns a job with all queries and keys of sequence i, for no particular head.
func sequence(cuQ, cuK []int32, i int) attnJob {
	j := attnJob{q: int(cuQ[i]), nq: int(cuQ[i+1] - cuQ[i]), k: int(cuK[i]), nk: int(cuK[i+1] - cuK[i])}
	j.to, j.keyTo = j.nq, j.nk
	return j
}

// eachHead appends to jobs a copy of j for each of the heads key/value heads.
func (j attnJob) eachHead(jobs []attnJob, heads int) []attnJob {
	for j.kv = range heads {
		jobs = append(jobs, j)
	}
	return jobs
}

func (l *jobList) set(jobs []attnJob) {
	slices.SortStableFunc(jobs, func(a, b attnJob) int { return cmp.Compare(b.cost(), a.cost()) })
	*l = jobs
}

// balanced reports whether these jobs keep all threads busy until the end: no job exceeds 7/5 of a
// thread's equal share. Otherwise the backward uses smaller jobs in two passes, which take 7 matrix
// products instead of 5 but end earlier.
func (l jobList) balanced(threads int) bool {
	total := 0
	for i := range l {
		total += l[i].cost()
	}
	return total == 0 || 5*threads*l[0].cost() <= 7*total
}

// span is a range of keys lo … hi−1, counted from the start of a block of keys.
type span struct{ lo, hi int }

// visible returns the keys of a block that query q attends to, counted from the block's start. The
// block begins at key k0 and has n keys. The query is at position q + shift; window 0: no window.
func visible(q, shift, window, k0, n int) span {
	s := span{0, min(n, q+shift+1-k0)}
	if window > 0 {
		s.lo = max(0, q+shift+1-window-k0)
	}
	return s
}

// seen returns the keys of a block that at least one of the queries from … to−1 attends to. The
// other arguments are as in visible.
func seen(from, to, shift, window, k0, n int) span {
	return span{visible(from, shift, window, k0, n).lo, visible(to-1, shift, window, k0, n).hi}
}

// panels returns the number of panels (groups of vec.Panel columns) that hold n columns.
func panels(n int) int { return (n + vec.Panel - 1) / vec.Panel }

// packPanels copies n rows of width floats into panels: groups of vec.Panel columns, each stored as n short rows. Rows
// of src are stride floats apart.
func packPanels(dst, src []float32, stride, n, width int) {
	for p := 0; p < width; p += vec.Panel {
		d := dst[p*n:]
		if p+vec.Panel <= width {
			for r := range n {
				*(*[vec.Panel]float32)(d[r*vec.Panel:]) = *(*[vec.Panel]float32)(src[r*stride+p:])
			}
			continue
		}
		for r := range n {
			copy(d[r*vec.Panel:(r+1)*vec.Panel], src[r*stride+p:r*stride+width])
		}
	}
}

// scoreScale returns the factor by which softmax multiplies the scores. It is 1 with a softcap, because the softcap has
// already applied the scale.
func scoreScale(a *op.AttentionShape) float32 {
	if a.Softcap > 0 {
		return 1
	}
	return a.Scale
}

// strips returns the number of strips of at most stripRows queries for n queries.
func strips(n int) int { return (n + stripRows - 1) / stripRows }

// Names of the scratch buffers that attention uses.
const (
	bufKeys    = iota // keys, as columns of panels
	bufValues         // values, as rows (forward) or columns (backward) of panels
	bufWide           // rows widened from bf16
	bufWide2          // more rows widened from bf16
	bufScores         // scores, then probabilities
	bufDScores        // gradients of the scores
	bufOut            // output, or gradient of the queries
	bufMax            // largest score of a row so far
	bufSum            // sum of its exponentials so far
	bufKeyRows        // keys, as rows of panels
	bufQueries        // queries of a tile, as rows of panels
	bufDOut           // gradient of the output of a tile, as rows of panels
	bufDKeys
	bufDValues
	bufWas      // bufMax before the block
	bufBlockSum // sum of the exponentials of a block
	bufSlopes   // slopes of the cap for the scores of a strip
)
