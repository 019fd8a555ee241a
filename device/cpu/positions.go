package cpu

import (
	"fmt"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, addPositions)
	op.Add(&table, addPositionsBackward)
}

// addPositions computes Y row by row. All steps of a row run while the row is in the cache.
func addPositions(s *stream, a *op.AddPositions) error {
	if a.T == 0 || a.C == 0 {
		return nil
	}
	rows := int(a.Table.Len) / a.C
	reads(a.X, 1, 0, a.T*a.C)
	reads(a.Table, 1, 0, rows*a.C)
	reads(a.Pos, 1, 0, a.T)
	writes(a.Y, 1, 0, a.T*a.C)
	x, y, positions, at := actOf(a.X), actOf(a.Y), actOf(a.Table), i32s(a.Pos, a.T)
	if err := within("Pos", at, rows); err != nil {
		return err
	}
	s.forRows(a.T, a.C, func(sc *scratch, from, to int) {
		sum := sc.f32(2, a.C)
		for t := from; t < to; t++ {
			copy(sum, x.load(sc, 0, t*a.C, a.C))
			vec.Add(sum, positions.load(sc, 1, int(at[t])*a.C, a.C))
			y.put(t*a.C, sum)
		}
	})
	return nil
}

// addPositionsBackward goes over the positions. For each position it adds the gradients of all
// sequences in order, so every number of threads gives the same bits.
func addPositionsBackward(s *stream, a *op.AddPositionsBackward) error {
	if a.T == 0 || a.C == 0 {
		return nil
	}
	reads(a.DY, 1, 0, a.T*a.C)
	reads(a.Cu, 1, 0, a.Seqs+1)
	writes(a.DTable, 1, 0, a.Longest*a.C)
	in, out, cu := actOf(a.DY), f32s(a.DTable, a.Longest*a.C), i32s(a.Cu, a.Seqs+1)
	for i, first := range cu[:a.Seqs] {
		if n := int(cu[i+1]) - int(first); n < 0 || n > a.Longest {
			return fmt.Errorf("sequence %d has tokens %d to %d: want at most %d", i, first, cu[i+1], a.Longest)
		}
	}
	s.forRows(a.Longest, a.C, func(sc *scratch, from, to int) {
		for p := from; p < to; p++ {
			for i, first := range cu[:a.Seqs] {
				t := int(first) + p
				if at := t - a.From; t < int(cu[i+1]) && at >= 0 && at < a.T {
					vec.Add(out[p*a.C:(p+1)*a.C], in.load(sc, 0, at*a.C, a.C))
				}
			}
		}
	})
	return nil
}
