package data

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sort"
)

// mix is the order in which documents come: all in file order, or a choice of them in any
// order, the same one perhaps several times.
type mix struct {
	n      int64
	seq    []int64 // the documents; nil: all, in file order
	ends   []int64 // tokens up to the end of each of seq; set by sum
	tokens int64   // tokens of all; set by sum
	id     [32]byte
	cache  *cache
}

// doc is the document at place p of the mix.
func (m *mix) doc(p int64) int64 {
	if m.seq == nil {
		return p
	}
	return m.seq[p]
}

// upTo are the documents at the places before p, in a slice of the caller's.
func (m *mix) upTo(p int64) []int64 {
	if m.seq != nil {
		return slices.Clone(m.seq[:p])
	}
	out := make([]int64, p)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

// sum adds up the documents' tokens: tokens is set then, and end can be called.
func (m *mix) sum(c *cache) {
	m.cache, m.tokens = c, c.Tokens
	if m.seq == nil {
		return
	}
	m.tokens, m.ends = 0, make([]int64, m.n)
	for p, doc := range m.seq {
		first, end := c.span(doc)
		m.tokens += end - first
		m.ends[p] = m.tokens
	}
}

// end is where the document at place p ends, in tokens from the start of the mix.
func (m *mix) end(p int64) int64 {
	if m.ends == nil {
		return m.cache.end(p)
	}
	return m.ends[p]
}

// stretch is the range [from, to) of a document's tokens.
type stretch struct{ from, to int64 }

// packed are the pieces of packed row i: tokens [i*MaxSeqLen, (i+1)*MaxSeqLen) of the mix.
func (d *Dataset) packed(i int64) iter.Seq2[int64, stretch] {
	n := int64(d.spec.MaxSeqLen)
	at, end := i*n, min((i+1)*n, d.mix.tokens)
	p := int64(sort.Search(int(d.mix.n), func(k int) bool { return d.mix.end(int64(k)) > at }))
	return func(yield func(int64, stretch) bool) {
		for ; at < end; p++ {
			doc := d.mix.doc(p)
			first, last := d.c.span(doc)
			start := d.mix.end(p) - (last - first)
			to := min(end, d.mix.end(p))
			if !yield(doc, stretch{at - start, to - start}) {
				return
			}
			at = to
		}
	}
}

// setSpans are, for each data set, the range [from, to) of its documents.
func (d *Dataset) setSpans() [][2]int64 {
	spans := make([][2]int64, len(d.spec.sets))
	at := int64(0)
	for _, f := range d.c.Files {
		if s := &spans[f.Set]; s[0] == s[1] {
			s[0], s[1] = at, at
		}
		at += f.Docs
		spans[f.Set][1] = at
	}
	return spans
}

// sampleStream numbers the random permutations that choose a data set's documents, mixStream
// the random numbers that choose the next data set, so that they are independent of others.
const (
	sampleStream = uint64(1) << 62
	mixStream    = uint64(3) << 61
)

// mostMixed bounds how many documents a mix can have.
const mostMixed = 1 << 32

// newMix puts the documents of all data sets in order.
func (d *Dataset) newMix() (mix, error) {
	concat, whole := len(d.spec.sets) == 1 || d.spec.MixStrategy == mixConcat, true
	for _, set := range d.spec.sets {
		whole = whole && set.Samples == 0 && set.Split.whole() && d.spec.MaxSamples == 0
	}
	if concat && whole {
		return mix{n: d.c.Docs}, nil
	}
	spans := d.setSpans()
	parts := make([][]int64, len(spans))
	for i, s := range spans {
		set := &d.spec.sets[i]
		from, to := set.Split.of(s[1] - s[0])
		if most := d.spec.MaxSamples; most > 0 {
			to = min(to, from+most)
		}
		if from == to && (!concat || !set.Split.whole()) {
			return mix{}, &SpecError{err: fmt.Errorf("data set %q gives none of its %d documents; take it out of the mix", set.Name, s[1]-s[0])}
		}
		parts[i] = d.sample(i, s[0]+from, s[0]+to)
	}
	if concat {
		return mixOf(slices.Concat(parts...)), nil
	}
	return d.interleave(parts)
}

// sample is the choice of data set i's documents, out of those in [from, to): all of them,
// or as many as its entry says. They are in file order; where more are asked for than there
// are, each comes once before any comes again.
func (d *Dataset) sample(i int, from, to int64) []int64 {
	want := d.spec.sets[i].Samples
	if want == 0 || from == to {
		want = to - from
	}
	out := make([]int64, 0, want)
	for round := uint64(0); int64(len(out)) < want; round++ {
		n, start := min(want-int64(len(out)), to-from), len(out)
		p := newPermutation(to-from, d.spec.Seed, sampleStream+uint64(i)<<32+round)
		for k := range n {
			if n == to-from {
				out = append(out, from+k)
			} else {
				out = append(out, from+p.at(k))
			}
		}
		slices.Sort(out[start:])
	}
	return out
}

// interleave takes one document after the other: from the data sets in turn, or from one
// that is drawn by its share. A data set that has come to its end begins again. "under"
// stops when the first data set has come to its end, "over" when all have; in turn, each
// data set gives the same number of documents. Source: interleave_datasets of Hugging
// Face's datasets, first_exhausted and all_exhausted.
func (d *Dataset) interleave(parts [][]int64) (mix, error) {
	share := d.spec.InterleaveProbs
	if err := d.checkLength(parts, share); err != nil {
		return mix{}, err
	}
	over := d.spec.MixStrategy == mixOver
	next, ended, left := make([]int, len(parts)), make([]bool, len(parts)), len(parts)
	var seq []int64
	for k := uint64(0); ; k++ {
		i := int(k % uint64(len(parts)))
		if through := left < len(parts) && !over || left == 0; through && (i == 0 || len(share) > 0) {
			break
		}
		if len(share) > 0 {
			i = draw(share, scramble(scramble(scramble(uint64(d.spec.Seed))^mixStream)^k))
		}
		seq = append(seq, parts[i][next[i]])
		if next[i]++; next[i] == len(parts[i]) {
			next[i] = 0
			if !ended[i] {
				ended[i] = true
				left--
			}
		}
	}
	return mixOf(seq), nil
}

// mixOf is the mix of the documents seq, in that order.
func mixOf(seq []int64) mix {
	h, buf := sha256.New(), make([]byte, 0, 8<<10)
	for part := range slices.Chunk(seq, 1<<10) {
		buf = buf[:0]
		for _, doc := range part {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(doc))
		}
		h.Write(buf)
	}
	return mix{n: int64(len(seq)), seq: seq, id: [32]byte(h.Sum(nil))}
}

// draw chooses a data set, by the shares, with a random number.
func draw(share []float64, random uint64) int {
	x := float64(random>>11) / (1 << 53) // in [0, 1), without rounding
	for i, s := range share {
		if x -= s; x < 0 {
			return i
		}
	}
	return len(share) - 1 // the shares may add up to a little less than 1
}

// checkLength refuses shares that would make the mix absurdly long.
func (d *Dataset) checkLength(parts [][]int64, share []float64) error {
	var lengths []float64
	for i, p := range parts {
		if len(share) == 0 {
			lengths = append(lengths, float64(len(p))*float64(len(parts)))
		} else {
			lengths = append(lengths, float64(len(p))/share[i])
		}
	}
	n := slices.Min(lengths)
	if d.spec.MixStrategy == mixOver {
		n = slices.Max(lengths)
	}
	if n > mostMixed {
		return &SpecError{"interleave_probs", fmt.Errorf("interleaving would take %.3g documents until data set %q has come to its end; raise its share", n, d.spec.sets[slices.Index(lengths, n)].Name)}
	}
	return nil
}
