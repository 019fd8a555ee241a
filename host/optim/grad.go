package optim

import (
	"fmt"
	"iter"
	"math"
	"sort"
	"unsafe"

	"mt/base/parallel"
)

// Grad is a gradient in host memory. It belongs to a whole layer (its flat element space: all tensors one after the
// other), to one tensor, or to some rows of a tensor.
type Grad struct {
	Data  []byte // Elems elements, aligned to their size
	BF16  bool   // bf16 elements; false: fp32
	Elems int64
	// Sparse: Data has only the gradients of some rows of a tensor, whose numbers IDs has in strictly rising order. The
	// gradients of all other rows are zero.
	Sparse bool
	IDs    []int32
}

// OfRows returns g as the gradient of some rows of a table. ids has the numbers of the rows, in strictly rising order.
func (g Grad) OfRows(ids []int32) Grad {
	g.Sparse, g.IDs = true, ids
	return g
}

// size returns the number of bytes of an element.
func (g Grad) size() int64 {
	if g.BF16 {
		return 2
	}
	return 4
}

// kind returns the kind of gradient by which kernels are chosen: fp32 or bf16.
func (g Grad) kind() gradKind {
	if g.BF16 {
		return gradBF16
	}
	return gradF32
}

// Check panics unless g has at least elems elements, enough memory for them and proper alignment. The panic's message
// begins with what, the name of the operation.
func (g Grad) Check(what string, elems int64) {
	if g.Elems < elems || int64(len(g.Data)) < g.Elems*g.size() {
		panic(fmt.Sprintf("optim: %s: gradient of %d elements in %d bytes, wanted %d elements", what, g.Elems, len(g.Data), elems))
	}
	if p := unsafe.Pointer(unsafe.SliceData(g.Data)); uintptr(p)%uintptr(g.size()) != 0 {
		panic(fmt.Sprintf("optim: %s: gradient at %#x is not aligned", what, uintptr(p)))
	}
}

// at returns the address of element i.
func (g Grad) at(i int64) *byte { return &g.Data[i*g.size()] }

// Part returns the elements [at, at+n) of g.
func (g Grad) Part(at, n int64) Grad {
	size := g.size()
	return Grad{Data: g.Data[at*size : (at+n)*size], BF16: g.BF16, Elems: n}
}

// View returns memory b as a slice of uint16 or float32. It panics if b is not aligned for E.
func View[E uint16 | float32](b []byte) []E {
	var e E
	size := int(unsafe.Sizeof(e))
	if len(b) == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%uintptr(size) != 0 || len(b)%size != 0 {
		panic(fmt.Sprintf("optim: %d bytes at %#x are not elements of %d bytes", len(b), uintptr(p), size))
	}
	return unsafe.Slice((*E)(p), len(b)/size)
}

// CheckIDs panics unless ids rise strictly and are smaller than rows. The panic's message begins with what.
func CheckIDs(what string, ids []int32, rows int) {
	for i, id := range ids {
		if id < 0 || int(id) >= rows || i > 0 && id <= ids[i-1] {
			panic(fmt.Sprintf("optim: %s: ids[%d] = %d: ids rise strictly and are below %d", what, i, id, rows))
		}
	}
}

// rowRun is a run of n consecutive rows of a table, from row number row on.
type rowRun struct{ row, n int }

// runs cuts the rows [row, end) of a table into runs of consecutive rows. The rows of a run are either all in ids,
// which rise strictly, or all missing there. With each run it yields the index in ids of the run's first row; −1 if the
// rows are missing.
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

// sumLanes is the number of partial sums of a block of elements. Element i of the block is added to partial sum i %
// sumLanes.
const sumLanes = 32

// SumSquares returns the sum of the squares of g in float64. Its partition depends on the length alone. Blocks of 32768
// elements have 32 partial sums each, which are filled in element order and combined in a tree. The blocks' sums are
// added in order. So the result has the same bits for any number of threads and any instruction set, and zero padding
// does not change the result.
//
// The square of an fp32 number is exact in float64 and at most 2^256, so a sum of fewer than 2^767 squares cannot
// overflow. The sum is therefore finite exactly if every element is finite; AllFinite relies on this. pool may be nil.
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

// AllFinite reports whether all elements of a gradient are finite. sumSquares is the result of SumSquares for the
// gradient.
func AllFinite(sumSquares float64) bool {
	return !math.IsNaN(sumSquares) && !math.IsInf(sumSquares, 0)
}

// fold adds up the partial sums of a block in a tree and returns the total. The order of the additions is fixed, so the
// bits are too.
func fold(lanes *[sumLanes]float64) float64 {
	for half := sumLanes / 2; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0]
}

// Split splits the bits of an fp32 value into two halves. hi is the value rounded to bf16, with ties away from zero. lo
// is the signed rest, with which Join restores the bits exactly.
//
// For finite values above the largest bf16, hi is an infinity. For some NaNs hi is not a NaN: NaNs whose bits are next
// to the bits of an infinity, or of a number with the other sign.
func Split(bits uint32) (hi, lo uint16) {
	return uint16((bits + 1<<15) >> 16), uint16(bits)
}

// Join returns the bits of the fp32 value that Split has split into hi and lo.
func Join(hi, lo uint16) uint32 {
	return uint32(hi)<<16 + uint32(int32(int16(lo)))
}

// SplitRow applies Split to each element of src and writes the halves to hi and lo.
func SplitRow(hi, lo []uint16, src []float32) {
	hi, lo = hi[:len(src)], lo[:len(src)]
	for i, x := range src {
		hi[i], lo[i] = Split(math.Float32bits(x))
	}
}

// JoinRow applies Join to each pair of elements of hi and lo and writes the values to dst.
func JoinRow(dst []float32, hi, lo []uint16) {
	hi, lo = hi[:len(dst)], lo[:len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(Join(hi[i], lo[i]))
	}
}
