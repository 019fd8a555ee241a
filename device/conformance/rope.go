package conformance

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("RoPE", ropeCases) }

func ropeCases(add func(string, func(*rig))) {
	// Each shape has T, heads, dim, rotary, and how many elements longer than a dense row the
	// distance between rows is.
	for _, sh := range [][5]int{{1, 1, 2, 2, 0}, {5, 3, 32, 32, 7}, {40, 2, 64, 64, 0}, {3, 2, 7, 6, 1}, {9, 4, 80, 20, 3}, {4, 2, 5, 0, 0}, {0, 1, 4, 4, 0}} {
		for way := range 4 {
			inverse, interleaved := way&1 > 0, way&2 > 0
			add(fmt.Sprintf("%v,%v,%v", sh, inverse, interleaved), func(r *rig) {
				const places = 11
				T, heads, dim, rotary, stride := sh[0], sh[1], sh[2], sh[3], sh[1]*sh[2]+sh[4]
				cos, sin := make([]float64, places*rotary/2), make([]float64, places*rotary/2)
				for i := range cos {
					sin[i], cos[i] = math.Sincos(10 * r.rng.Float64())
				}
				pos := make([]int32, T)
				for i := range pos {
					pos[i] = int32(r.rng.IntN(places))
				}
				x, c, s, p := r.act("X", max(0, (T-1)*stride+(heads-1)*dim+rotary)), r.values("Cos", device.F32, cos), r.values("Sin", device.F32, sin), r.i32("Pos", pos)
				want := x.copy()
				oracle.RoPE(want, c.v, s.v, pos, T, heads, dim, rotary, stride, inverse, interleaved)
				x.expect(want, 4*uF32, 1) // two products and a sum
				enqueue(r, op.RoPE{X: x.t, Cos: c.t, Sin: s.t, Pos: p.t, T: T, Heads: heads, Dim: dim,
					Rotary: rotary, Stride: stride, Inverse: inverse, Interleaved: interleaved})
			})
		}
	}
}
