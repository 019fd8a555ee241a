package cpu

import (
	"fmt"

	"mt/device"
	"mt/device/args"
	"mt/device/cpu/vec"
)

// RoPE rotates heads in place. Of the Rotary elements that take part, i pairs
// with i + Rotary/2. Source: arXiv:2104.09864, Hugging Face's layout.
func (o ops) RoPE(s device.Stream, a device.RoPE) {
	half, width := a.Rotary/2, a.Heads*a.Dim
	on(s).do("RoPE", args.RoPE(a), func(s *stream) error {
		if half == 0 || width == 0 {
			return nil
		}
		places := int(min(a.Cos.Len, a.Sin.Len)) / half
		reads(a.Cos, 1, 0, places*half)
		reads(a.Sin, 1, 0, places*half)
		reads(a.Pos, 1, 0, a.T)
		writes(a.X, a.T, a.Stride, width)
		pos := i32s(a.Pos, a.T)
		if err := within("Pos", pos, places); err != nil {
			return err
		}
		cos, sin, x := f32s(a.Cos, places*half), f32s(a.Sin, places*half), actOf(a.X)
		s.forRows(a.T, width, func(sc *scratch, from, to int) {
			for t := from; t < to; t++ {
				row := x.load(sc, 0, t*a.Stride, width)
				p := int(pos[t]) * half
				vec.Rotate(row, cos[p:p+half], sin[p:p+half], a.Heads, a.Dim, a.Inverse)
				x.store(t*a.Stride, row)
			}
		})
		return nil
	})
}

// within wants every index to be in 0 … n−1.
func within(name string, index []int32, n int) error {
	for i, v := range index {
		if v < 0 || int(v) >= n {
			return fmt.Errorf("%s[%d] is %d: want less than %d", name, i, v, n)
		}
	}
	return nil
}
