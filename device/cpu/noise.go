package cpu

import (
	"fmt"
	"math"
	"sort"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, addNoise) }

// addNoise goes row by row: it draws the row's noise and adds it while the row is in the cache.
func addNoise(s *stream, a *op.AddNoise) error {
	if a.T == 0 || a.C == 0 {
		return nil
	}
	reads(a.Cu, 1, 0, a.Seqs+1)
	writes(a.X, 1, 0, a.T*a.C)
	x, cu := actOf(a.X), i32s(a.Cu, a.Seqs+1)
	if err := ascending("Cu", cu, math.MaxInt32); err != nil {
		return err
	}
	if end := a.From + a.T; a.From < int(cu[0]) || end > int(cu[a.Seqs]) {
		return fmt.Errorf("rows %d to %d: the documents are %d to %d", a.From, end, cu[0], cu[a.Seqs])
	}
	s.forRows(a.T, a.C, func(sc *scratch, from, to int) {
		noise := sc.f32(1, a.C)
		for t := from; t < to; t++ {
			at := a.From + t
			doc := sort.Search(a.Seqs, func(i int) bool { return int(cu[i+1]) > at })
			size := a.Scale / float32(math.Sqrt(float64(cu[doc+1]-cu[doc])))
			spread(noise, size, a.Seed, uint32(a.First+at), uint32(a.Step))
			row := x.load(sc, 0, t*a.C, a.C)
			vec.Add(noise, row)
			x.put(t*a.C, noise)
		}
	})
	return nil
}

// spread fills dst with uniform random numbers in ±size for one row of noise. The seed, the row's
// place in the training step and the step number select the numbers, as op.AddNoise defines.
func spread(dst []float32, size float32, seed uint64, place, step uint32) {
	for c := 0; c < len(dst); c += 4 {
		for i, word := range philox([4]uint32{uint32(c / 4), place, step}, [2]uint32{uint32(seed), uint32(seed >> 32)}) {
			if c+i < len(dst) {
				dst[c+i] = size * (float32(int32(word>>8)*2+1-1<<24) / (1 << 24))
			}
		}
	}
}

// philox computes Philox4x32-10, a counter-based random generator, for counter c (Salmon et al., SC
// 2011).
func philox(c [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		a, b := uint64(c[0])*0xd2511f53, uint64(c[2])*0xcd9e8d57
		c = [4]uint32{uint32(b>>32) ^ c[1] ^ key[0], uint32(b), uint32(a>>32) ^ c[3] ^ key[1], uint32(a)}
		key[0], key[1] = key[0]+0x9e3779b9, key[1]+0xbb67ae85
	}
	return c
}
