package data

import (
	"cmp"
	"slices"
)

// room is what is left of a bin: so many units free in the bin of that number.
type room struct {
	free int64
	bin  int
}

// bestFit puts things of the given lengths, none above most, into bins that hold most:
// the longest first, each into the fullest bin that has room for it. It returns, for each
// bin, the numbers of the things in it, rising; bins are in the order of their first thing.
// Source: best-fit decreasing, as in arXiv:2404.10830.
func bestFit(lengths []int64, most int64) [][]int {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lengths[b], lengths[a]) })
	var bins [][]int
	var open []room // rising
	before := func(a, b room) int { return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.bin, b.bin)) }
	for _, i := range order {
		r := room{most, len(bins)}
		if k, _ := slices.BinarySearchFunc(open, room{lengths[i], -1}, before); k < len(open) {
			r = open[k]
			open = slices.Delete(open, k, k+1)
		} else {
			bins = append(bins, nil)
		}
		bins[r.bin] = append(bins[r.bin], i)
		if r.free -= lengths[i]; r.free > 0 {
			k, _ := slices.BinarySearchFunc(open, r, before)
			open = slices.Insert(open, k, r)
		}
	}
	for _, b := range bins {
		slices.Sort(b)
	}
	slices.SortFunc(bins, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	return bins
}
