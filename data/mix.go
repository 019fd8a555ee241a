package data

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// setSpans returns, for each data set, the range [from, to) of its documents in the cache.
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

// First streams of random numbers. Streams are independent of each other and of the order of rows.
// From sampleStream on, there is a stream for each data set and repetition, with which sample
// chooses documents. With mixStream, interleave draws the next data set.
const (
	sampleStream = uint64(1) << 62
	mixStream    = uint64(3) << 61
)

// mostMixed is the largest number of documents that interleaving may make; checkLength enforces it.
const mostMixed = 1 << 32

// newMix returns the order in which the documents of all data sets come, with samples and interleaving applied.
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

// sample returns the documents of data set i to use, in file order. The data set's documents have
// the numbers [from, to) in the cache. Its setting Samples says how many to use; 0: all. If Samples
// exceeds their number, each document comes once before any comes twice.
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

// interleave mixes parts, the documents of each data set, one document at a time. Without InterleaveProbs the data
// sets take turns; with them, a random number draws the next data set. A data set that ends starts again.
// interleave_under stops when the first data set has ended, interleave_over when all have. Source: Hugging Face
// datasets, interleave_datasets (first_exhausted, all_exhausted).
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

// mixOf returns the mix that consists of the documents seq, in this order.
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

// draw returns the index of a data set, chosen by a random number. share[i] is the probability of data set i.
func draw(share []float64, random uint64) int {
	x := float64(random>>11) / (1 << 53) // in [0, 1), exact
	for i, s := range share {
		if x -= s; x < 0 {
			return i
		}
	}
	return len(share) - 1 // the shares may sum to slightly less than 1
}

// checkLength returns an error if interleaving would make a mix of more than mostMixed documents, as a tiny share
// does. parts are the documents of each data set.
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
