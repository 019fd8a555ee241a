package conformance

import (
	"fmt"
	"slices"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("Activate", activateCases)
	row("ActivateBackward", activateBackwardCases)
}

// activations are the activations without a gate, each with its float64 definition and its allowed
// error. They are taken from the table units, except for CutSiLU and SigmoidGate, which exist only
// with a gate.
var activations = append(slices.DeleteFunc(slices.Clone(units), func(u unit) bool { return u.f == op.CutSiLU || u.f == op.SigmoidGate }),
	unit{f: op.SquaredReLU, oracle: oracle.SquaredReLU, bound: 4 * uF32})

func activateCases(add func(string, func(*rig))) {
	for _, u := range activations {
		for _, sh := range gluShapes {
			for _, form := range []string{"plain", "in place"} {
				T, F := sh[0], sh[1]
				add(fmt.Sprintf("%v %dx%d,%s", u.f, T, F, form), func(r *rig) {
					x := r.values("x", r.dt, scaled(r.normal(T*F), 4))
					y := x
					if form == "plain" {
						y = r.act("y", T*F)
					}
					want := y.copy()
					oracle.Activate(u.oracle, want, x.v)
					u.expect(y, want)
					enqueue(r, op.Activate{Activation: u.f, Y: y.t, X: x.t, T: T, F: F})
				})
			}
		}
	}
}

func activateBackwardCases(add func(string, func(*rig))) {
	for _, u := range activations {
		for _, sh := range gluShapes {
			for _, form := range []string{"plain", "y", "in place", "all in place"} {
				add(fmt.Sprintf("%v %dx%d,%s", u.f, sh[0], sh[1], form), func(r *rig) { u.activateBackward(r, sh[0], sh[1], form) })
			}
		}
	}
}

func (u *unit) activateBackward(r *rig, T, F int, form string) {
	x, dy := r.values("x", r.dt, scaled(r.normal(T*F), 4)), r.act("dy", T*F)
	dx, y := x, dy
	if form == "plain" || form == "y" {
		dx = r.act("dx", T*F)
	}
	if form == "y" {
		y = r.act("y", T*F)
	}
	wantX, wantY := dx.copy(), y.copy()
	oracle.ActivateBackward(u.oracle, wantX, wantY, dy.copy(), x.copy())
	u.expect(dx, wantX)
	written := device.Tensor{}
	if form == "y" || form == "all in place" {
		written = y.t
		u.expect(y, wantY)
	}
	enqueue(r, op.ActivateBackward{Activation: u.f, DX: dx.t, Y: written, DY: dy.t, X: x.t, T: T, F: F})
}
