package cpu

import (
	"unsafe"

	"mt/device"
	"mt/device/cpu/vec"
)

// ops implements device.Ops. Package args says what is wrong with arguments; the
// values of index tensors are checked before an operation uses them.
type ops struct{}

// on is the stream under s, which must be one of this package.
func on(s device.Stream) *stream { return s.(*stream) }

// f32s is the first n elements of an fp32 tensor, nil for none.
func f32s(t device.Tensor, n int) []float32 {
	if t.None() {
		return nil
	}
	return unsafe.Slice((*float32)(pointer(t.Addr)), n)
}

// i32s is the first n elements of an int32 tensor.
func i32s(t device.Tensor, n int) []int32 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(pointer(t.Addr)), n)
}

// reads and writes announce rows rows, stride elements apart, of n elements to
// the race detector.
func reads(t device.Tensor, rows, stride, n int) { announce(t, rows, stride, n, raceRead) }

func writes(t device.Tensor, rows, stride, n int) { announce(t, rows, stride, n, raceWrite) }

func announce(t device.Tensor, rows, stride, n int, f func(uintptr, int)) {
	if !raceEnabled || t.None() || n == 0 {
		return
	}
	size := int(t.DType.Size())
	if stride == n {
		rows, n = 1, rows*n
	}
	for r := range rows {
		f(t.Addr+uintptr(r*stride*size), n*size)
	}
}

// pieceElems is about how many elements a worker takes at a time.
const pieceElems = 16 << 10

// forRows calls f with pieces of the rows 0 … rows, of width elements each, on
// all cores. Only what treats every row by itself may use it.
func (s *stream) forRows(rows, width int, f func(sc *scratch, from, to int)) {
	piece := min(max(1, pieceElems/max(width, 1)), max(1, rows/(2*s.pool.Threads())))
	s.pool.Run((rows+piece-1)/piece, func(i int) {
		sc := s.scratch.get()
		f(sc, i*piece, min(rows, (i+1)*piece))
		s.scratch.put(sc)
	})
}

// sumRows adds to total (n) f32, unless that is none, what f adds up over rows: f
// gets zeros for the rows from … to−1. Into which blocks rows fall follows from their
// number alone, and the sums of the blocks are taken in order.
func (s *stream) sumRows(total device.Tensor, n, rows int, f func(sc *scratch, sum []float32, from, to int)) {
	each := max(32, (rows+63)/64)
	blocks := (rows + each - 1) / each
	s.partial = grown(s.partial, blocks*n)
	sums := s.partial[:blocks*n]
	clear(sums)
	s.pool.Run(blocks, func(b int) {
		sc := s.scratch.get()
		f(sc, sums[b*n:(b+1)*n], b*each, min(rows, (b+1)*each))
		s.scratch.put(sc)
	})
	if total.None() || blocks == 0 {
		return
	}
	for b := 1; b < blocks; b++ {
		vec.Add(sums[:n], sums[b*n:(b+1)*n])
	}
	vec.Add(f32s(total, n), sums[:n])
}
