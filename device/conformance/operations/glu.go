package operations

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("GLU", gluCases)
	row("GLUBackward", gluBackwardCases)
}

// unit is an activation, its oracle, and how far f(x)·u may be off: relative to the
// largest result, which counts as least if it is smaller.
type unit struct {
	f      op.Activation
	oracle oracle.Activation
	bound  float64
	least  float64
}

// A sigmoid σ is an exponential (2e-7), a sum and a quotient. That of the GELU has an argument z
// with four more roundings, and z times the derivative of the GELU's slope is below 3. The slope
// also has x·dz/dx, up to 12 where it counts, times 1 − σ, which is as inexact as a number near 1.
// Far below 0 a result is only as exact as z is large.
var units = []unit{{op.SiLU, oracle.SiLU, 12 * uF32, 0}, {op.GELUTanh, oracle.GELUTanh, 40 * uF32, 1}}

// gluShapes are pairs of T and F.
var gluShapes = [][2]int{{1, 1}, {3, 5}, {7, 16}, {40, 33}, {5, 704}, {0, 3}}

func gluCases(add func(string, func(*rig))) {
	for _, u := range units {
		for _, sh := range gluShapes {
			T, F := sh[0], sh[1]
			add(fmt.Sprintf("%v %dx%d", u.f, T, F), func(r *rig) {
				gu, y := r.values("gu", r.dt, scaled(r.normal(2*T*F), 4)), r.act("y", T*F)
				want := y.copy()
				oracle.GLU(u.oracle, want, gu.v, T, F)
				u.expect(y, want)
				enqueue(r, op.GLU{Activation: u.f, Y: y.t, GU: gu.t, T: T, F: F})
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
	gu, dy := r.values("gu", r.dt, scaled(r.normal(2*T*F), 4)), r.act("dy", T*F)
	dgu, y := gu, dy
	if form == "plain" || form == "y" {
		dgu = r.act("dgu", 2*T*F)
	}
	if form == "y" {
		y = r.act("y", T*F)
	}
	wantG, wantY := dgu.copy(), y.copy()
	oracle.GLUBackward(u.oracle, wantG, wantY, dy.copy(), gu.copy(), T, F)
	u.expect(dgu, wantG)
	written := device.Tensor{}
	if form == "y" || form == "all in place" {
		written = y.t
		u.expect(y, wantY)
	}
	enqueue(r, op.GLUBackward{Activation: u.f, DGU: dgu.t, Y: written, DY: dy.t, GU: gu.t, T: T, F: F})
}
