package optim

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"mt/internal/base/bf16"
	"mt/internal/base/parallel"
)

// This file sums what several ranks have of one gradient.

// sumElems is how many elements are summed at a time.
const sumElems = 4096

// SumParts sets dst to the sum of parts, each as long as dst and of its type, in their order.
// Sums are made in fp32; where dst is bf16 they are rounded to nearest even at the end. pool
// may be nil.
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

// sumParts sums the n elements from element at on; n is at most sumElems.
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

// Rows says which elements of the rows ids of a table, laid one after the other, are in the
// share of the table: those in [from, to). ids rise strictly; cols is the length of a row. The
// ranges of all ranks follow each other.
func (s Share) Rows(ids []int32, cols int64) (from, to int64) {
	return rowElem(ids, cols, s.From), rowElem(ids, cols, s.To)
}

// rowElem is how many elements of the rows ids come before element e of the table.
func rowElem(ids []int32, cols, e int64) int64 {
	i := int64(sort.Search(len(ids), func(i int) bool { return (int64(ids[i])+1)*cols > e }))
	if i == int64(len(ids)) {
		return i * cols
	}
	return i*cols + max(0, e-int64(ids[i])*cols)
}

// Touched lists the ids whose rows have an element in the share, rising, each once; ids has one
// rising list for each rank.
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

// SumRows sets dst (len(touched), cols) to the sums of the rows touched of a table, as Touched
// lists them. Part r has what Rows says of the rows ids[r]. Elements outside the share are set
// to zero. The order of sums and their rounding are those of SumParts. pool may be nil.
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

// sumLanes is how many sums a block of elements is added up in: element i of the
// block goes to sum i % sumLanes.
const sumLanes = 32

// SumSquares is the sum of the squares of g in float64. The partition is fixed
// by the length alone: in blocks of 32768 elements, 32 sums run beside each
// other, in the order of the elements, and are added up in a tree; the blocks'
// sums are added in order. So the result has the same bits for any number of
// threads and any instruction set, and elements of padding, being zero, do not
// change it.
//
// A square of an fp32 number is exact in float64 and at most 2^256, so a sum of
// fewer than 2^767 of them cannot overflow. The sum is therefore finite exactly
// when every element is, which is how AllFinite works. pool may be nil.
func SumSquares(pool *parallel.Pool, g Grad) float64 {
	if g.Elems == 0 {
		return 0
	}
	g.Check("sum of squares", g.Elems)
	sums := make([]float64, (g.Elems+pieceElems-1)/pieceElems)
	k := active
	pool.Run(len(sums), func(i int) {
		at := int64(i) * pieceElems
		n := int(min(pieceElems, g.Elems-at))
		announceGrad(g.kind(), g.at(at), n)
		sums[i] = k.sumSquares(g.kind(), g.at(at), n)
	})
	var sum float64
	for _, s := range sums {
		sum += s
	}
	return sum
}

// AllFinite says, given the SumSquares of some elements, whether all of them are
// finite.
func AllFinite(sumSquares float64) bool {
	return !math.IsNaN(sumSquares) && !math.IsInf(sumSquares, 0)
}

// fold adds up the sums of a block in a tree.
func fold(lanes *[sumLanes]float64) float64 {
	for half := sumLanes / 2; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0]
}
