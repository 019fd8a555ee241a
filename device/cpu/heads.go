package cpu

import (
	"mt/device"
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, copyHeads)
	op.Add(&table, sumHeads)
}

// copyHeads copies the heads as bytes, so it serves every type of element.
func copyHeads(s *stream, a *op.CopyHeads) error {
	wide := a.C + a.Zeros
	if wide == 0 || a.Heads == 0 {
		return nil
	}
	if raceEnabled {
		for t := range a.T {
			reads(from(a.Src, t*a.SrcStride), a.Heads, a.SrcHead, a.C)
			writes(from(a.Dst, t*a.DstStride), a.Heads, a.DstHead, wide)
		}
	}
	size := a.Dst.DType.Size()
	part := func(t device.Tensor, off, n int) []byte {
		return memory(device.Mem{Addr: t.Addr + uintptr(int64(off)*size), Bytes: int64(n) * size})
	}
	s.forRows(a.T, a.Heads*wide, func(_ *scratch, first, end int) {
		for t := first; t < end; t++ {
			for h := range a.Heads {
				to := t*a.DstStride + h*a.DstHead
				copy(part(a.Dst, to, a.C), part(a.Src, t*a.SrcStride+h*a.SrcHead, a.C))
				clear(part(a.Dst, to+a.C, a.Zeros))
			}
		}
	})
	return nil
}

// sumHeads adds the heads of each row in their order, so every number of threads gives the same
// bits.
func sumHeads(s *stream, a *op.SumHeads) error {
	if a.C == 0 {
		return nil
	}
	if raceEnabled {
		for t := range a.T {
			reads(from(a.Src, t*a.SrcStride), a.Heads, a.SrcHead, a.C)
		}
		writes(a.Dst, a.T, a.DstStride, a.C)
	}
	in, out := actOf(a.Src), actOf(a.Dst)
	s.forRows(a.T, (a.Heads+1)*a.C, func(sc *scratch, first, end int) {
		for t := first; t < end; t++ {
			sum := out.target(sc, 0, t*a.DstStride, a.C)
			clear(sum)
			for h := range a.Heads {
				vec.Add(sum, in.load(sc, 1, t*a.SrcStride+h*a.SrcHead, a.C))
			}
			out.store(t*a.DstStride, sum)
		}
	})
	return nil
}

// from returns the part of t from element off on.
func from(t device.Tensor, off int) device.Tensor { return t.Slice(int64(off), t.Len-int64(off)) }
