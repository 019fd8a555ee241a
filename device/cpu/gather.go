package cpu

import (
	"mt/device"
	"mt/device/op"
)

func init() { op.Add(&table, gatherRows) }

// gatherRows copies rows as bytes, so it serves every type of element.
func gatherRows(s *stream, a *op.GatherRows) error {
	if a.C == 0 {
		return nil
	}
	rows := int(a.Src.Len) / a.C
	reads(a.Src, 1, 0, rows*a.C)
	reads(a.Index, 1, 0, a.T)
	writes(a.Dst, 1, 0, a.T*a.C)
	ids := i32s(a.Index, a.T)
	if err := within("Index", ids, rows); err != nil {
		return err
	}
	bytes := uintptr(a.C) * uintptr(a.Dst.DType.Size())
	s.forRows(a.T, a.C, func(_ *scratch, from, to int) {
		for t := from; t < to; t++ {
			copy(memory(device.Mem{Addr: a.Dst.Addr + uintptr(t)*bytes, Bytes: int64(bytes)}),
				memory(device.Mem{Addr: a.Src.Addr + uintptr(ids[t])*bytes, Bytes: int64(bytes)}))
		}
	})
	return nil
}
