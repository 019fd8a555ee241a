package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, convert) }

// convert converts Src to the type of Dst. Threads take pieces of pieceElems elements in turn.
func convert(s *stream, a *op.Convert) error {
	if a.N == 0 {
		return nil
	}
	reads(a.Src, 1, 0, int(a.N))
	writes(a.Dst, 1, 0, int(a.N))
	const piece = pieceElems
	in, out := actOf(a.Src), actOf(a.Dst)
	s.pool.Run(int((a.N+piece-1)/piece), func(i int) {
		from := i * piece
		count := min(piece, int(a.N)-from)
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
}
