package cpu

import (
	"fmt"
	"unsafe"

	"mt/device"
	"mt/device/cpu/vec"
	"mt/device/op"
)

// table maps each operation to the function that runs it. Each operation's file adds its function.
// These functions check the values of index tensors first.
var table op.Table[*stream]

// on returns s as a stream of this package.
func on(s device.Stream) *stream { return s.(*stream) }

// f32s returns the first n elements of an fp32 tensor; nil if there is no tensor.
func f32s(t device.Tensor, n int) []float32 {
	if t.None() {
		return nil
	}
	return unsafe.Slice((*float32)(pointer(t.Addr)), n)
}

// i32s returns the first n elements of an int32 tensor.
func i32s(t device.Tensor, n int) []int32 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(pointer(t.Addr)), n)
}

// ascending returns an error unless bounds, the tensor called name, begins at 0 or more, never
// decreases and ends at n or less.
func ascending(name string, bounds []int32, n int) error {
	last := int32(0)
	for i, v := range bounds {
		if v < last || int(v) > n {
			return fmt.Errorf("%s[%d] is %d: want %d to %d", name, i, v, last, n)
		}
		last = v
	}
	return nil
}

// within returns an error unless every element of index, the tensor called name, is in 0 … n−1.
func within(name string, index []int32, n int) error {
	for i, v := range index {
		if v < 0 || int(v) >= n {
			return fmt.Errorf("%s[%d] is %d: want less than %d", name, i, v, n)
		}
	}
	return nil
}

// reads and writes tell the race detector, which does not see assembly, that an operation reads or
// writes memory: rows rows of n elements, stride elements apart.
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

// announceRows tells the race detector that an operation writes the given rows of t, n elements
// each.
func announceRows(t device.Tensor, rows []int32, n int) {
	if !raceEnabled {
		return
	}
	for _, r := range rows {
		writes(t.Slice(int64(r)*int64(n), int64(n)), 1, 0, n)
	}
}

// pieceElems is about how many elements of an operation a worker computes before it takes the next
// piece.
const pieceElems = 16 << 10

// forRows calls f on all cores for ranges of the rows 0 … rows−1. Argument width is the number of
// elements of a row and decides how many rows a range has. The operation must treat rows
// independently.
func (s *stream) forRows(rows, width int, f func(sc *scratch, from, to int)) {
	piece := min(max(1, pieceElems/max(width, 1)), max(1, rows/(2*s.pool.Threads())))
	s.pool.Run((rows+piece-1)/piece, func(i int) {
		sc := s.scratch.get()
		f(sc, i*piece, min(rows, (i+1)*piece))
		s.scratch.put(sc)
	})
}

// sumRows adds the sum of f over all rows to total (n) f32, unless total is none. Function f adds
// rows from … to−1 to sum, which starts at zero. The calls of f are for blocks of rows that depend
// only on the number of rows. The blocks' sums are added in order. So any number of threads gives
// the same bits.
func (s *stream) sumRows(total device.Tensor, n, rows int, f func(sc *scratch, sum []float32, from, to int)) {
	sums := s.sumOfRows(n, rows, !total.None(), f)
	if sums != nil {
		vec.Add(f32s(total, n), sums)
	}
}

// sumOfRows returns the sum of f over the rows as n numbers, for sumRows. nil: there are no rows,
// or wanted is false. Then f is called only for what else it does.
func (s *stream) sumOfRows(n, rows int, wanted bool, f func(sc *scratch, sum []float32, from, to int)) []float32 {
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
	if !wanted || blocks == 0 {
		return nil
	}
	for b := 1; b < blocks; b++ {
		vec.Add(sums[:n], sums[b*n:(b+1)*n])
	}
	return sums[:n]
}
