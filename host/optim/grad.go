package optim

import (
	"fmt"
	"iter"
	"math"
	"sort"
	"unsafe"

	"mt/base/parallel"
)

// Grad is a gradient in host memory, of a layer's flat element space, of one
// tensor, or of some rows of one.
type Grad struct {
	Data  []byte // Elems elements, aligned to their size
	BF16  bool   // the elements are bf16, else fp32
	Elems int64
	// Sparse: Data has the rows IDs of a tensor, which rise strictly. The gradients
	// of all other rows are zero.
	Sparse bool
	IDs    []int32
}

// OfRows is g as the gradient of the rows ids of a table.
func (g Grad) OfRows(ids []int32) Grad {
	g.Sparse, g.IDs = true, ids
	return g
}

// size is the number of bytes of an element.
func (g Grad) size() int64 {
	if g.BF16 {
		return 2
	}
	return 4
}

// kind is the kind of gradient that a kernel has to read.
func (g Grad) kind() gradKind {
	if g.BF16 {
		return gradBF16
	}
	return gradF32
}

// Check panics unless g has at least elems elements and the memory for them. The
// message begins with what.
func (g Grad) Check(what string, elems int64) {
	if g.Elems < elems || int64(len(g.Data)) < g.Elems*g.size() {
		panic(fmt.Sprintf("optim: %s: gradient of %d elements in %d bytes, wanted %d elements", what, g.Elems, len(g.Data), elems))
	}
	if p := unsafe.Pointer(unsafe.SliceData(g.Data)); uintptr(p)%uintptr(g.size()) != 0 {
		panic(fmt.Sprintf("optim: %s: gradient at %#x is not aligned", what, uintptr(p)))
	}
}

// at points to element i.
func (g Grad) at(i int64) *byte { return &g.Data[i*g.size()] }

// Part is the n elements of g from element at on.
func (g Grad) Part(at, n int64) Grad {
	size := g.size()
	return Grad{Data: g.Data[at*size : (at+n)*size], BF16: g.BF16, Elems: n}
}

// View is the memory b as elements of type E. It panics where b is not aligned for
// them.
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

// Split cuts the bits of an fp32 value in two: hi is its bf16 image, rounded half
// up in magnitude, and lo the signed rest. Join gives every pattern of bits back.
// hi is an infinity for finite values above the greatest bf16. For some NaNs hi is
// no NaN: those whose patterns are next to that of an infinity, and those next to
// the patterns of the other sign.
func Split(bits uint32) (hi, lo uint16) {
	return uint16((bits + 1<<15) >> 16), uint16(bits)
}

// Join is the inverse of Split.
func Join(hi, lo uint16) uint32 {
	return uint32(hi)<<16 + uint32(int32(int16(lo)))
}

// SplitRow applies Split to a run of elements.
func SplitRow(hi, lo []uint16, src []float32) {
	hi, lo = hi[:len(src)], lo[:len(src)]
	for i, x := range src {
		hi[i], lo[i] = Split(math.Float32bits(x))
	}
}

// JoinRow applies Join to a run of elements.
func JoinRow(dst []float32, hi, lo []uint16) {
	hi, lo = hi[:len(dst)], lo[:len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(Join(hi[i], lo[i]))
	}
}
