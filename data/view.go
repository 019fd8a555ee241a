package data

import (
	"fmt"
	"sort"
)

// Train is the rows that are not in Eval.
func (d *Dataset) Train() View {
	return View{d: d, rows: int(d.rows) - len(d.val), drop: d.val}
}

// Eval is the rows that ValSize holds out. Seed alone chooses them, whatever the order of
// training. A share of the rows is rounded up.
func (d *Dataset) Eval() View { return View{d: d, rows: len(d.val), pick: d.val} }

// All is Train and Eval together.
func (d *Dataset) All() View { return View{d: d, rows: int(d.rows)} }

// View is some rows of a data set, in file order. The zero value has no rows.
type View struct {
	d    *Dataset
	rows int
	pick []int64 // where not nil: the rows of the view
	drop []int64 // else the view has all rows but these, which rise
}

// Rows is the number of rows.
func (v View) Rows() int { return v.rows }

// Row is row i of the view. The slices are the caller's.
func (v View) Row(i int) Row {
	var r Row
	v.fill(i, &r)
	return r
}

func (v View) fill(i int, r *Row) { v.d.fill(v.at(i), r) }

// at is the data set's number of the view's row i.
func (v View) at(i int) int {
	switch {
	case i < 0 || i >= v.rows:
		panic(fmt.Sprintf("data: row %d of %d", i, v.rows))
	case v.pick != nil:
		return int(v.pick[i])
	}
	return int(without(v.drop, int64(i)))
}

// Longest is how many tokens the view's longest row has; 0 where the view has no rows.
func (v View) Longest() int {
	longest := 0
	for i := range v.rows {
		longest = max(longest, int(v.d.tokens(v.at(i))))
		if longest == int(v.d.longestRow()) {
			break // no row can be longer
		}
	}
	return longest
}

// without is the i-th number, from 0, of those that are not in drop, which rises.
func without(drop []int64, i int64) int64 {
	return i + int64(sort.Search(len(drop), func(k int) bool { return drop[k]-int64(k) > i }))
}
