package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, rope) }

// rope rotates heads in place; op.RoPE says which elements form a pair. Source: arXiv:2104.09864.
func rope(s *stream, a *op.RoPE) error {
	half, width := a.Rotary/2, (a.Heads-1)*a.Dim+a.Rotary
	if half == 0 || a.Heads == 0 {
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
	rotate := vec.Rotate
	if a.Interleaved {
		rotate = vec.RotatePairs
	}
	s.forRows(a.T, width, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			row := x.load(sc, 0, t*a.Stride, width)
			p := int(pos[t]) * half
			rotate(row, cos[p:p+half], sin[p:p+half], a.Heads, a.Dim, a.Inverse)
			x.store(t*a.Stride, row)
		}
	})
	return nil
}
