package optim

import (
	"fmt"
	"iter"
	"sort"

	"mt/internal/bfloat"
	"mt/internal/parallel"
)

// CheckIDs panics unless ids rise strictly and are all rows of a table with rows
// rows.
func CheckIDs(what string, ids []int32, rows int) {
	for i, id := range ids {
		if id < 0 || int(id) >= rows || i > 0 && id <= ids[i-1] {
			panic(fmt.Sprintf("optim: %s: ids[%d] = %d: ids rise strictly and are below %d", what, i, id, rows))
		}
	}
}

// rowRun is a run of neighbouring rows.
type rowRun struct{ row, n int }

// runs cuts the rows [row, end) into runs whose rows are all in ids or all not.
// With each run it yields where in ids its first row is, −1 where it is not there.
func runs(ids []int32, row, end int) iter.Seq2[int, rowRun] {
	return func(yield func(int, rowRun) bool) {
		at := sort.Search(len(ids), func(i int) bool { return int(ids[i]) >= row })
		for row < end {
			first, n := -1, 0
			if at < len(ids) && int(ids[at]) == row {
				first = at
				for ; at < len(ids) && int(ids[at]) == row+n && row+n < end; at++ {
					n++
				}
			} else {
				n = end - row
				if at < len(ids) {
					n = min(n, int(ids[at])-row)
				}
			}
			if !yield(first, rowRun{row, n}) {
				return
			}
			row += n
		}
	}
}

// AddRows adds rows (len(ids), cols) to the rows ids of dst (V, cols), which is the
// head's contribution to the gradient of a tied table. ids must rise strictly. Sums
// are made in fp32; where dst is bf16 they are rounded to nearest even. pool may be
// nil.
func AddRows(pool *parallel.Pool, dst Grad, ids []int32, rows Grad, cols int) {
	if cols <= 0 || dst.Elems%int64(cols) != 0 {
		panic(fmt.Sprintf("optim: add rows of %d columns to %d elements", cols, dst.Elems))
	}
	CheckIDs("add rows", ids, int(dst.Elems/int64(cols)))
	dst.Check("add rows to", dst.Elems)
	rows.Check("add rows", int64(len(ids))*int64(cols))
	each := max(1, pieceElems/cols)
	pool.Run((len(ids)+each-1)/each, func(piece int) {
		for i := piece * each; i < min(len(ids), (piece+1)*each); i++ {
			addRow(dst.Part(int64(ids[i])*int64(cols), int64(cols)), rows.Part(int64(i)*int64(cols), int64(cols)))
		}
	})
}

// addRow is dst += src.
func addRow(dst, src Grad) {
	switch {
	case dst.BF16 && src.BF16:
		d, s := View[uint16](dst.Data), View[uint16](src.Data)
		for i := range d {
			d[i] = bfloat.Round(bfloat.Widen(d[i]) + bfloat.Widen(s[i]))
		}
	case dst.BF16:
		d, s := View[uint16](dst.Data), View[float32](src.Data)
		for i := range d {
			d[i] = bfloat.Round(bfloat.Widen(d[i]) + s[i])
		}
	case src.BF16:
		d, s := View[float32](dst.Data), View[uint16](src.Data)
		for i := range d {
			d[i] += bfloat.Widen(s[i])
		}
	default:
		d, s := View[float32](dst.Data), View[float32](src.Data)
		for i := range d {
			d[i] += s[i]
		}
	}
}
