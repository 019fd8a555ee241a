package cpu

import (
	"mt/device"
	"mt/device/args"
	"mt/device/cpu/vec"
)

// Convert writes dst (n) = src (n), fp32 or bf16 each.
func (o ops) Convert(s device.Stream, dst, src device.Tensor, n int64) {
	on(s).do("Convert", args.Convert(dst, src, n), func(s *stream) error {
		if n == 0 {
			return nil
		}
		reads(src, 1, 0, int(n))
		writes(dst, 1, 0, int(n))
		const piece = pieceElems
		in, out := actOf(src), actOf(dst)
		s.pool.Run(int((n+piece-1)/piece), func(i int) {
			from := i * piece
			count := min(piece, int(n)-from)
			switch {
			case in.bf16 && out.bf16:
				copy(out.u16(from, count), in.u16(from, count))
			case in.bf16:
				vec.Widen(out.f32(from, count), in.u16(from, count))
			case out.bf16:
				vec.Narrow(out.u16(from, count), in.f32(from, count))
			default:
				copy(out.f32(from, count), in.f32(from, count))
			}
		})
		return nil
	})
}
