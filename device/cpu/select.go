package cpu

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, selectKeys) }

// candidate is a key that a query may attend to.
type candidate struct {
	score float32
	key   int32
}

// selectQueries is the number of queries of one job of selectKeys. The job packs all keys of the sequence once.
const selectQueries = 32

// bufCandidates is the scratch buffer of candidates. The other buffers have the names of attention's.
const bufCandidates = bufSlopes + 1

// selectKeys computes the scores of a few queries of a sequence, block by block of keys, and then chooses keys for each
// query.
func selectKeys(s *stream, a *op.SelectKeys) error {
	if raceEnabled {
		reads(a.CuQ, 1, 0, a.Seqs+1)
		reads(a.CuK, 1, 0, a.Seqs+1)
		reads(a.Q, 1, 0, a.TQ*a.Heads*a.Dim)
		reads(a.K, 1, 0, a.TK*a.Dim)
		reads(a.W, 1, 0, a.TQ*a.Heads)
		writes(a.Keys, 1, 0, a.TQ*a.TopK)
	}
	shape := op.AttentionShape{CuQ: a.CuQ, CuK: a.CuK, Seqs: a.Seqs, TQ: a.TQ, TK: a.TK, KVHeads: 1}
	if err := s.jobs.list(&shape, selectQueries); err != nil {
		return err
	}
	s.pool.Run(len(s.jobs), func(i int) {
		sc := s.scratch.get()
		selection{a, s.jobs[i], sc}.run()
		s.scratch.put(sc)
	})
	return nil
}

// selection is one job of selectKeys: queries from … to−1 of a sequence.
type selection struct {
	*op.SelectKeys
	attnJob
	sc *scratch
}

func (f selection) run() {
	n, width := f.to-f.from, f.shift()+f.to // queries, and keys that any of them may attend to
	scores := f.sc.f32(bufOut, n*width)
	clear(scores)
	weights := actOf(f.W).load(f.sc, bufSum, (f.q+f.from)*f.Heads, n*f.Heads)
	queries, stride := actOf(f.Q).loadRows(f.sc, bufQueries, (f.q+f.from)*f.Heads*f.Dim, n*f.Heads, f.Dim, f.Dim)
	products := f.sc.f32(bufScores, stripRows*scoreStride)
	for k0 := 0; k0 < width && f.Heads > 0; k0 += keyBlock {
		keys := min(keyBlock, width-k0)
		rows, keyStride := actOf(f.K).loadRows(f.sc, bufWide, (f.k+k0)*f.Dim, keys, f.Dim, f.Dim)
		packed := f.sc.f32(bufKeys, panels(keys)*vec.Panel*f.Dim)
		vec.Transpose(packed, rows, keyStride, keys, f.Dim)
		for r := 0; r < n*f.Heads; r += stripRows {
			m := min(stripRows, n*f.Heads-r)
			vec.Tile(m, f.Dim, queries[r*stride:], stride, false, packed, vec.Panel*f.Dim, products, scoreStride, panels(keys), false)
			for i := range m {
				row := scores[(r+i)/f.Heads*width+k0:][:keys]
				w := weights[r+i] * f.WScale
				for j, x := range products[i*scoreStride:][:keys] {
					row[j] += w * max(0, x*f.Scale)
				}
			}
		}
	}
	for q := range n {
		f.choose(f.from+q, scores[q*width:(q+1)*width])
	}
}

// choose writes the keys of query q of the sequence, whose scores begin with the sequence's first key.
func (f selection) choose(q int, scores []float32) {
	out := i32s(f.Keys, f.TQ*f.TopK)[(f.q+q)*f.TopK:][:f.TopK]
	for i := range out {
		out[i] = -1
	}
	seen := f.shift() + q + 1
	if seen <= f.TopK {
		for i := range seen {
			out[i] = int32(i)
		}
		return
	}
	memory := f.sc.f32(bufCandidates, 2*f.nk)
	all := unsafe.Slice((*candidate)(unsafe.Pointer(&memory[0])), f.nk)
	for i := range all { // later keys take part, because the choice among equal scores depends on them
		all[i] = candidate{float32(math.Inf(-1)), int32(i)}
		if i < seen {
			all[i].score = scores[i]
		}
	}
	selectLargest(all, f.TopK)
	chosen := all[:f.TopK]
	slices.SortFunc(chosen, func(a, b candidate) int { return cmp.Compare(a.key, b.key) })
	for i, c := range chosen {
		out[i] = c.key
	}
}

// selectLargest moves the n candidates with the largest scores to the front of all. Among equal scores it chooses as
// torch.topk does on a CPU, by the same comparisons and moves in the same order. If n is at most a 64th of all, torch.topk
// calls std::partial_sort of the GNU C++ library, which keeps a heap. Otherwise it calls std::nth_element: quickselect,
// whose pivot is the median of the second, the middle and the last element.
func selectLargest(all []candidate, n int) {
	if 64*n <= len(all) {
		heapSelect(all, n)
		return
	}
	from, to, nth := 0, len(all), n-1
	for depth := 2 * (bits.Len(uint(len(all))) - 1); to-from > 3; depth-- {
		if depth == 0 {
			part := all[from:to]
			heapSelect(part, nth+1-from)
			part[0], part[nth-from] = part[nth-from], part[0]
			return
		}
		if cut := from + divide(all[from:to]); cut <= nth {
			from = cut
		} else {
			to = cut
		}
	}
	slices.SortStableFunc(all[from:to], func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
}

// before says whether candidate a comes before b.
func before(a, b candidate) bool { return a.score > b.score }

// divide moves a pivot to the front and divides the others around it: first candidates that do not come after the pivot,
// then candidates that do not come before it. It returns the index of the second part.
func divide(c []candidate) int {
	pivot := median(c, 1, len(c)/2, len(c)-1)
	c[0], c[pivot] = c[pivot], c[0]
	i, j := 1, len(c)
	for {
		for before(c[i], c[0]) {
			i++
		}
		for j--; before(c[0], c[j]); j-- {
		}
		if i >= j {
			return i
		}
		c[i], c[j] = c[j], c[i]
		i++
	}
}

// median returns that of the indices x, y and z whose candidate is between the two others.
func median(c []candidate, x, y, z int) int {
	if before(c[x], c[y]) {
		switch {
		case before(c[y], c[z]):
			return y
		case before(c[x], c[z]):
			return z
		}
		return x
	}
	switch {
	case before(c[x], c[z]):
		return x
	case before(c[y], c[z]):
		return z
	}
	return y
}

// heapSelect moves the n largest candidates to the front. These are a heap whose root is the smallest of them.
func heapSelect(c []candidate, n int) {
	heap := c[:n]
	for i := n/2 - 1; i >= 0; i-- {
		sift(heap, i, heap[i])
	}
	for i := n; i < len(c); i++ {
		if v := c[i]; before(v, heap[0]) {
			c[i] = heap[0]
			sift(heap, 0, v)
		}
	}
}

// sift puts v into the heap at index i, whose element is gone: the smaller child moves up until there is none, and v
// then rises from there to its place.
func sift(heap []candidate, i int, v candidate) {
	top := i
	for 2*i+1 < len(heap) {
		child := 2*i + 1
		if child+1 < len(heap) && !before(heap[child+1], heap[child]) {
			child++
		}
		heap[i] = heap[child]
		i = child
	}
	for parent := (i - 1) / 2; i > top && before(heap[parent], v); parent = (i - 1) / 2 {
		heap[i] = heap[parent]
		i = parent
	}
	heap[i] = v
}
