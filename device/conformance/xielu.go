package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("XIELU", xieluCases)
	row("XIELUBackward", xieluBackwardCases)
}

// xieluShapes are the shapes of the gated units, and two shapes whose rows a device sums in several
// blocks.
var xieluShapes = append([][2]int{{1100, 3}, {9, 4100}}, gluShapes...)

// xieluInputs returns random inputs. Some are 0, some near 0, and some even nearer to 0 than −1e−6,
// a constant in xIELU's definition.
func xieluInputs(r *rig, n int) *array {
	v := scaled(r.normal(n), 2)
	for i := range v {
		switch i % 7 {
		case 0:
			v[i] = 0
		case 1:
			v[i] *= 1e-3
		case 2:
			v[i] *= 1e-7
		}
	}
	return r.values("x", r.dt, v)
}

// xieluCases are the cases of XIELU. Their bounds follow from the formula. A result is a polynomial
// or an exponential (error 2e-7) times a softplus, and each has an error of a few roundings. The
// slope at negative numbers subtracts numbers near 1, which magnifies their errors.
func xieluCases(add func(string, func(*rig))) {
	for _, sh := range xieluShapes {
		for _, form := range []string{"plain", "in place"} {
			T, F := sh[0], sh[1]
			add(fmt.Sprintf("%dx%d,%s", T, F, form), func(r *rig) {
				x, alpha := xieluInputs(r, T*F), r.f32("alpha", 2)
				y := x
				if form == "plain" {
					y = r.act("y", T*F)
				}
				want := y.copy()
				oracle.XIELU(want, x.v, alpha.v)
				y.least = 1
				y.expect(want, 16*uF32, 1)
				enqueue(r, op.XIELU{Y: y.t, X: x.t, Alpha: alpha.t, T: T, F: F})
			})
		}
	}
}

func xieluBackwardCases(add func(string, func(*rig))) {
	for _, sh := range xieluShapes {
		for _, form := range []string{"plain", "in place", "frozen"} {
			T, F := sh[0], sh[1]
			add(fmt.Sprintf("%dx%d,%s", T, F, form), func(r *rig) {
				x, dy, alpha, dalpha := xieluInputs(r, T*F), r.act("dy", T*F), r.f32("alpha", 2), r.f32("dalpha", 2)
				dx, y := x, dy
				if form == "plain" {
					dx, y = r.act("dx", T*F), r.act("y", T*F)
				}
				wantX, wantY, wantA := dx.copy(), y.copy(), dalpha.copy()
				oracle.XIELUBackward(wantX, wantY, dy.copy(), x.copy(), alpha.v, wantA)
				dx.least, y.least, dalpha.least = 1, 1, 1
				dx.expect(wantX, 24*uF32, 1)
				y.expect(wantY, 16*uF32, 1)
				a := op.XIELUBackward{DX: dx.t, Y: y.t, DY: dy.t, X: x.t, Alpha: alpha.t, T: T, F: F}
				if form != "frozen" {
					a.DAlpha = dalpha.t
					dalpha.expect(wantA, 4*summing(T*F), 0)
				}
				enqueue(r, a)
			})
		}
	}
}
