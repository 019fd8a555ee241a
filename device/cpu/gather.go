package cpu

import (
	"fmt"

	"mt/device"
	"mt/device/args"
	"mt/device/cpu/vec"
)

// GatherRows writes dst (T, C) = src (U, C) rows index (T).
func (o ops) GatherRows(s device.Stream, dst, src, index device.Tensor, T, C int) {
	on(s).do("GatherRows", args.GatherRows(dst, src, index, T, C), func(s *stream) error {
		if C == 0 {
			return nil
		}
		rows := int(src.Len) / C
		reads(src, 1, 0, rows*C)
		reads(index, 1, 0, T)
		writes(dst, 1, 0, T*C)
		ids := i32s(index, T)
		if err := within("index", ids, rows); err != nil {
			return err
		}
		bytes := uintptr(C) * uintptr(dst.DType.Size())
		s.forRows(T, C, func(_ *scratch, from, to int) {
			for t := from; t < to; t++ {
				copy(memory(device.Mem{Addr: dst.Addr + uintptr(t)*bytes, Bytes: int64(bytes)}),
					memory(device.Mem{Addr: src.Addr + uintptr(ids[t])*bytes, Bytes: int64(bytes)}))
			}
		})
		return nil
	})
}

// ScatterAddRows accumulates drows (U, C) f32: row u += Σ dy (T, C) act rows
// pos[start[u]:start[u+1]], in that order.
func (o ops) ScatterAddRows(s device.Stream, drows, dy, start, pos device.Tensor, U, T, C int) {
	on(s).do("ScatterAddRows", args.ScatterAddRows(drows, dy, start, pos, U, T, C), func(s *stream) error {
		if U == 0 || C == 0 {
			return nil
		}
		reads(dy, 1, 0, T*C)
		reads(start, 1, 0, U+1)
		reads(pos, 1, 0, T)
		writes(drows, 1, 0, U*C)
		from, at, out, in := i32s(start, U+1), i32s(pos, T), f32s(drows, U*C), actOf(dy)
		if err := ascending("start", from, T); err != nil {
			return err
		}
		if err := within("pos", at[from[0]:from[U]], T); err != nil {
			return err
		}
		s.forRows(U, C, func(sc *scratch, first, last int) {
			for u := first; u < last; u++ {
				for _, t := range at[from[u]:from[u+1]] {
					vec.Add(out[u*C:(u+1)*C], in.load(sc, 0, int(t)*C, C))
				}
			}
		})
		return nil
	})
}

// ascending wants bounds to rise from at least 0 to at most n.
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
