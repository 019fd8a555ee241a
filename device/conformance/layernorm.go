package conformance

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("LayerNorm", layerNormCases)
	row("LayerNormBackward", layerNormBackwardCases)
}

// layerNormShapes are shapes of LayerNorm: the number of rows, and dim, the elements of a row.
var layerNormShapes = [][2]int{{1, 1}, {5, 7}, {40, 33}, {2, 300}, {0, 4}, {2100, 5}, {3, 4100}, {1, 8200}}

// away is added to every element of X, so that a kernel fails if it forgets to subtract the mean.
const away = 3

func shifted(v []float64) []float64 {
	for i := range v {
		v[i] += away
	}
	return v
}

// layerNormCases are the cases of LayerNorm. Elements of x and the mean are about away, larger than
// the differences. So differences have the rounding errors of numbers of size away.
func layerNormCases(add func(string, func(*rig))) {
	for _, sh := range layerNormShapes {
		for _, form := range []string{"plain", "in place", "no stats", "no bias"} {
			add(fmt.Sprintf("%v,%s", sh, form), func(r *rig) { layerNorm(r, sh[0], sh[1], form) })
		}
	}
}

func layerNorm(r *rig, rows, dim int, form string) {
	const eps = 1e-2 // large, so that the rounding of a single element does not decide
	x, w, b, stats := r.values("X", r.dt, shifted(r.normal(rows*dim))), r.f32("W", dim), r.f32("B", dim), r.f32("Stats", 2*rows)
	y := x
	if form != "in place" {
		y = r.act("Y", rows*dim)
	}
	a := op.LayerNorm{Y: y.t, Stats: stats.t, X: x.t, W: w.t, B: b.t, Rows: rows, Dim: dim, Eps: eps}
	bias := b.v
	if form == "no bias" {
		a.B, bias = device.Tensor{}, nil
	}
	wantY, wantS := y.copy(), stats.copy()
	oracle.LayerNorm(wantY, wantS, x.copy(), w.v, bias, eps)
	y.expect(wantY, (1+away)*summing(dim), 1)
	y.least = 1
	if form == "no stats" {
		a.Stats = device.Tensor{}
	} else {
		stats.expect(wantS, (1+away)*summing(dim), 0)
	}
	enqueue(r, a)
}

func layerNormBackwardCases(add func(string, func(*rig))) {
	for _, sh := range layerNormShapes {
		for _, form := range []string{"overwrite", "add", "in place", "no dw"} {
			add(fmt.Sprintf("%v,%s", sh, form), func(r *rig) { layerNormBackward(r, sh[0], sh[1], form) })
		}
	}
}

func layerNormBackward(r *rig, rows, dim int, form string) {
	x, w, dy := r.values("X", r.dt, shifted(r.normal(rows*dim))), r.f32("W", dim), r.act("DY", rows*dim)
	dx := dy
	if form != "in place" {
		dx = r.act("DX", rows*dim)
	}
	stat := make([]float64, 2*rows)
	for i := range rows {
		stat[2*i], stat[2*i+1] = away+r.rng.Float64(), 0.5+r.rng.Float64()
	}
	stats, dw := r.values("Stats", device.F32, stat), r.f32("DW", dim)
	wantX, wantW := dx.copy(), dw.copy()
	oracle.LayerNormBackward(wantX, wantW, dy.copy(), x.v, w.v, stats.v, form == "add")
	dx.expect(wantX, 2*(1+away)*summing(dim), 1)
	dx.least = 1 // terms of about 1 may cancel
	gradient := dw.t
	if form == "no dw" {
		gradient = device.Tensor{}
	} else {
		dw.expect(wantW, (1+away)*summing(rows), 0)
	}
	enqueue(r, op.LayerNormBackward{DX: dx.t, DW: gradient, DY: dy.t, X: x.t, W: w.t, Stats: stats.t, Rows: rows, Dim: dim, Add: form == "add"})
}
