package conformance

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("GLU", gluCases)
	row("GLUBackward", gluBackwardCases)
}

// unit is an activation f with its definition in float64 (oracle) and bound, the allowed error of
// f(x)·u, where u is up. The error is relative to the largest result, or to least if that is
// larger.
type unit struct {
	f      op.Activation
	oracle oracle.Activation
	bound  float64
	least  float64
	cut    op.Cut
}

// units are the activations of gated units and their error bounds. The sigmoid of each is an
// exponential (error 2e-7), a sum and a quotient.
//
// A GELU's sigmoid has an argument z with four more roundings, and z times the derivative of the
// GELU's slope is below 3. The slope also has x·dz/dx, up to 12 where it matters, times 1 − σ. The
// absolute error of 1 − σ is the rounding error of a number near 1. Far below 0 the relative error of a result grows with z.
//
// The exact GELU's z is a polynomial, whose rounding is as small and whose fit has an error of
// 1e-7. A clamped gate has two more roundings. A ReLU has none.
var units = []unit{{f: op.SiLU, oracle: oracle.SiLU, bound: 12 * uF32}, {f: op.GELUTanh, oracle: oracle.GELUTanh, bound: 40 * uF32, least: 1},
	{f: op.CutSiLU, bound: 16 * uF32, cut: op.Cut{Alpha: 1.75, Limit: 3}}, {f: op.SigmoidGate, oracle: oracle.Sigmoid, bound: 12 * uF32},
	{f: op.GELU, oracle: oracle.GELU, bound: 40 * uF32, least: 1}, {f: op.ReLU, oracle: oracle.ReLU, bound: 2 * uF32}}

// inputs returns random gates and ups. Some are exactly at a clamping limit, or at 0, where ReLU's
// slope changes.
func (u *unit) inputs(r *rig, n int) *array {
	v := scaled(r.normal(n), 4)
	for i := range v {
		if limit := float64(u.cut.Limit); limit > 0 && i%5 == 0 {
			v[i] = math.Copysign(limit, v[i])
		}
		if u.f == op.ReLU && i%5 == 0 {
			v[i] = 0
		}
	}
	return r.values("gu", r.dt, v)
}

// forward and gradient compute the expected results in float64 with the unit's oracle; nil: with
// oracle.CutGLU.
func (u *unit) forward(y, gu []float64, T, F int) {
	if u.oracle == nil {
		oracle.CutGLU(float64(u.cut.Alpha), float64(u.cut.Limit), y, gu, T, F)
		return
	}
	oracle.GLU(u.oracle, y, gu, T, F)
}

func (u *unit) gradient(dgu, y, dy, gu []float64, T, F int) {
	if u.oracle == nil {
		oracle.CutGLUBackward(float64(u.cut.Alpha), float64(u.cut.Limit), dgu, y, dy, gu, T, F)
		return
	}
	oracle.GLUBackward(u.oracle, dgu, y, dy, gu, T, F)
}

// gluShapes are shapes of gated units: T tokens with F elements each.
var gluShapes = [][2]int{{1, 1}, {3, 5}, {7, 16}, {40, 33}, {5, 704}, {0, 3}}

func gluCases(add func(string, func(*rig))) {
	for _, u := range units {
		for _, sh := range gluShapes {
			T, F := sh[0], sh[1]
			add(fmt.Sprintf("%v %dx%d", u.f, T, F), func(r *rig) {
				gu, y := u.inputs(r, 2*T*F), r.act("y", T*F)
				want := y.copy()
				u.forward(want, gu.v, T, F)
				u.expect(y, want)
				enqueue(r, op.GLU{Activation: u.f, Cut: u.cut, Y: y.t, GU: gu.t, T: T, F: F})
			})
		}
	}
}

func gluBackwardCases(add func(string, func(*rig))) {
	for _, u := range units {
		for _, sh := range gluShapes {
			for _, form := range []string{"plain", "y", "in place", "all in place"} {
				add(fmt.Sprintf("%v %dx%d,%s", u.f, sh[0], sh[1], form), func(r *rig) { u.backward(r, sh[0], sh[1], form) })
			}
		}
	}
}

func (u *unit) expect(a *array, want []float64) {
	a.least = u.least
	a.expect(want, u.bound, 1)
}

func (u *unit) backward(r *rig, T, F int, form string) {
	gu, dy := u.inputs(r, 2*T*F), r.act("dy", T*F)
	dgu, y := gu, dy
	if form == "plain" || form == "y" {
		dgu = r.act("dgu", 2*T*F)
	}
	if form == "y" {
		y = r.act("y", T*F)
	}
	wantG, wantY := dgu.copy(), y.copy()
	u.gradient(wantG, wantY, dy.copy(), gu.copy(), T, F)
	u.expect(dgu, wantG)
	written := device.Tensor{}
	if form == "y" || form == "all in place" {
		written = y.t
		u.expect(y, wantY)
	}
	enqueue(r, op.GLUBackward{Activation: u.f, Cut: u.cut, DGU: dgu.t, Y: written, DY: dy.t, GU: gu.t, T: T, F: F})
}
