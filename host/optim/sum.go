package optim

import (
	"fmt"
	"slices"
	"sort"

	"mt/base/bf16"
	"mt/base/parallel"
)

// This file sums the gradients of several ranks, or of two layers that share a table.

// sumElems is the number of elements that are summed at a time in a buffer.
const sumElems = 4096

// SumParts sets dst to the sum of parts, added in the order of parts. Each part has the length and type of dst. Sums
// are computed in fp32; a bf16 dst is rounded to nearest even at the end. pool may be nil.
func SumParts(pool *parallel.Pool, dst Grad, parts []Grad) {
	dst.Check("sum parts", dst.Elems)
	for _, p := range parts {
		p.Check("a part of a sum", dst.Elems)
		if p.BF16 != dst.BF16 || p.Elems != dst.Elems {
			panic(fmt.Sprintf("optim: a part of %d elements, bf16 %t, of a sum of %d, bf16 %t", p.Elems, p.BF16, dst.Elems, dst.BF16))
		}
	}
	pool.Run(int((dst.Elems+pieceElems-1)/pieceElems), func(piece int) {
		at, end := int64(piece)*pieceElems, min(dst.Elems, int64(piece+1)*pieceElems)
		for ; at < end; at += sumElems {
			sumParts(dst, parts, at, min(end-at, sumElems))
		}
	})
}

// sumParts does the work of SumParts for the elements [at, at+n), where n is at most sumElems.
func sumParts(dst Grad, parts []Grad, at, n int64) {
	var sums [sumElems]float32
	sum := sums[:n]
	for i, p := range parts {
		p = p.Part(at, n)
		switch {
		case p.BF16 && i == 0:
			for k, x := range View[uint16](p.Data) {
				sum[k] = bf16.Widen(x)
			}
		case p.BF16:
			for k, x := range View[uint16](p.Data) {
				sum[k] += bf16.Widen(x)
			}
		case i == 0:
			copy(sum, View[float32](p.Data))
		default:
			for k, x := range View[float32](p.Data) {
				sum[k] += x
			}
		}
	}
	dst = dst.Part(at, n)
	if !dst.BF16 {
		copy(View[float32](dst.Data), sum)
		return
	}
	for k := range View[uint16](dst.Data) {
		View[uint16](dst.Data)[k] = bf16.Round(sum[k])
	}
}

// Rows returns which elements of some table rows lie in the share. ids has the numbers of the rows, which rise
// strictly; cols is the length of a row. The range [from, to) counts elements of these rows written one after the
// other. The ranges of all ranks are adjacent.
func (s Share) Rows(ids []int32, cols int64) (from, to int64) {
	return rowElem(ids, cols, s.From), rowElem(ids, cols, s.To)
}

// rowElem returns how many elements of the rows ids precede element e of the table. ids rise strictly; cols is the
// length of a row.
func rowElem(ids []int32, cols, e int64) int64 {
	i := int64(sort.Search(len(ids), func(i int) bool { return (int64(ids[i])+1)*cols > e }))
	if i == int64(len(ids)) {
		return i * cols
	}
	return i*cols + max(0, e-int64(ids[i])*cols)
}

// Touched returns the ids of the table rows that lie at least partly in share s, rising and each
// once. For each rank, ids has a rising list of row ids; cols is the length of a row.
func (s Share) Touched(ids [][]int32, cols int64) (out []int32) {
	for _, list := range ids {
		for _, id := range list {
			if at := int64(id) * cols; at < s.To && at+cols > s.From {
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SumRows adds up the gradients of table rows over all ranks. ids[r] has the numbers of rank r's rows, and parts[r] has
// the gradients of these rows as far as they lie in the share (see Rows). touched comes from Touched. dst
// (len(touched), cols) gets the sum for each row of touched; elements outside the share become zero. Order and rounding
// are the same as in SumParts. pool may be nil.
func (s Share) SumRows(pool *parallel.Pool, dst Grad, touched []int32, ids [][]int32, parts []Grad, cols int64) {
	dst.Check("sum rows", int64(len(touched))*cols)
	each := max(1, pieceElems/int(cols))
	pool.Run((len(touched)+each-1)/each, func(piece int) {
		var have []Grad
		for i := piece * each; i < min(len(touched), (piece+1)*each); i++ {
			id := touched[i]
			row := dst.Part(int64(i)*cols, cols)
			clear(row.Data)
			first := int64(id) * cols
			from, to := max(first, s.From), min(first+cols, s.To)
			have = have[:0]
			for r, part := range parts {
				if k, ok := slices.BinarySearch(ids[r], id); ok {
					before, _ := s.Rows(ids[r], cols)
					have = append(have, part.Part(int64(k)*cols+from-first-before, to-from))
				}
			}
			SumParts(nil, row.Part(from-first, to-from), have)
		}
	})
}

// AddRows adds rows (len(ids), cols) to some rows of dst (V, cols): row i to row ids[i]. It serves two layers that
// share a table: dst is the head's gradient, rows the embedding's. ids must rise strictly. Sums are computed in fp32; a
// bf16 dst is rounded to nearest even. pool may be nil.
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

// addRow adds src to dst, element by element.
func addRow(dst, src Grad) {
	switch {
	case dst.BF16 && src.BF16:
		d, s := View[uint16](dst.Data), View[uint16](src.Data)
		for i := range d {
			d[i] = bf16.Round(bf16.Widen(d[i]) + bf16.Widen(s[i]))
		}
	case dst.BF16:
		d, s := View[uint16](dst.Data), View[float32](src.Data)
		for i := range d {
			d[i] = bf16.Round(bf16.Widen(d[i]) + s[i])
		}
	case src.BF16:
		d, s := View[float32](dst.Data), View[uint16](src.Data)
		for i := range d {
			d[i] += bf16.Widen(s[i])
		}
	default:
		d, s := View[float32](dst.Data), View[float32](src.Data)
		for i := range d {
			d[i] += s[i]
		}
	}
}
