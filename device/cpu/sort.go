package cpu

import (
	"slices"

	"mt/device/op"
)

func init() { op.Add(&table, sortByExpert) }

// sortByExpert is a counting sort: it counts the pairs of each expert and then moves every pair to
// its place.
func sortByExpert(s *stream, a *op.SortByExpert) error {
	reads(a.IDs, 1, 0, a.N)
	writes(a.Order, 1, 0, a.N)
	writes(a.Rows, 1, 0, a.N)
	writes(a.Offsets, 1, 0, a.E+1)
	writes(a.Counts, 1, 0, a.E)
	ids, order, rows, offsets := i32s(a.IDs, a.N), i32s(a.Order, a.N), i32s(a.Rows, a.N), i32s(a.Offsets, a.E+1)
	if err := within("IDs", ids, a.E); err != nil {
		return err
	}
	clear(offsets)
	for _, e := range ids {
		offsets[e+1]++
	}
	if !a.Counts.None() {
		for e, n := range offsets[1:] {
			i32s(a.Counts, a.E)[e] += n
		}
	}
	s.next = slices.Grow(s.next[:0], a.E)
	next := s.next[:a.E]
	for e := range a.E {
		next[e] = offsets[e]
		offsets[e+1] += offsets[e]
	}
	for i, e := range ids {
		order[next[e]], rows[next[e]] = int32(i), int32(i/a.K)
		next[e]++
	}
	return nil
}
