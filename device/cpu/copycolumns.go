package cpu

import (
	"mt/device"
	"mt/device/op"
)

func init() { op.Add(&table, copyColumns) }

// copyColumns copies the columns as bytes, so it serves every type of element.
func copyColumns(s *stream, a *op.CopyColumns) error {
	if a.C == 0 {
		return nil
	}
	reads(a.Src, a.T, a.SrcStride, a.C)
	writes(a.Dst, a.T, a.DstStride, a.C)
	size := a.Dst.DType.Size()
	part := func(t device.Tensor, row, stride int) []byte {
		return memory(device.Mem{Addr: t.Addr + uintptr(int64(row)*int64(stride)*size), Bytes: int64(a.C) * size})
	}
	s.forRows(a.T, a.C, func(_ *scratch, from, to int) {
		for t := from; t < to; t++ {
			copy(part(a.Dst, t, a.DstStride), part(a.Src, t, a.SrcStride))
		}
	})
	return nil
}
