package oracle

import (
	"math/rand/v2"
	"testing"
)

func TestShortConvBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	cu, x, w, dy, y := []int32{0, 1, 6, 8}, random(r, 8*7), random(r, 5*3), random(r, 40), make([]float64, 40)
	f := func() float64 {
		ShortConv(y, x, w, nil, cu, 5, 3, 7)
		return dot(y, dy)
	}
	dx, dw := make([]float64, 8*6), make([]float64, 15)
	ShortConvBackward(dx, dw, dy, x, w, cu, 5, 3, 7, 6)
	grad := make([]float64, len(x))
	for i := range 8 {
		copy(grad[i*7:][:5], dx[i*6:])
	}
	checkGrad(t, "x", x, grad, f)
	checkGrad(t, "w", w, dw, f)
}

// A sequence that is cut in two has the same output where the second part goes on from the first.
func TestDeltaGoesOn(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 2))
	a := Delta{Cu: []int32{0, 9}, KeyHeads: 1, Heads: 2, KeyDim: 3, ValueDim: 4, GateStride: 5}
	qkv, gates, aLog, dt := random(r, 9*14), random(r, 9*5), random(r, 2), random(r, 2)
	whole, parts, last := make([]float64, 72), make([]float64, 72), make([]float64, 24)
	a.GatedDelta(whole, nil, nil, qkv, gates, aLog, dt)
	for _, at := range [][2]int{{0, 4}, {4, 9}} {
		a.Cu = []int32{0, int32(at[1] - at[0])}
		a.GatedDelta(parts[at[0]*8:], nil, last, qkv[at[0]*14:], gates[at[0]*5:], aLog, dt)
	}
	for i, v := range whole {
		if d := v - parts[i]; d > 1e-14 || d < -1e-14 {
			t.Fatalf("element %d is %v, in two parts %v", i, v, parts[i])
		}
	}
}

func TestGatedDeltaBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 3))
	a := Delta{Cu: []int32{0, 5, 6, 9}, KeyHeads: 2, Heads: 4, KeyDim: 3, ValueDim: 2, GateStride: 9}
	qkv, gates, aLog, dt, do := random(r, 9*20), random(r, 81), random(r, 4), random(r, 4), random(r, 72)
	o := make([]float64, 72)
	f := func() float64 {
		a.GatedDelta(o, nil, nil, qkv, gates, aLog, dt)
		return dot(o, do)
	}
	dqkv, dgates, da, ddt := make([]float64, 180), make([]float64, 81), make([]float64, 4), make([]float64, 4)
	a.GatedDeltaBackward(dqkv, dgates, da, ddt, do, qkv, gates, aLog, dt)
	checkGrad(t, "qkv", qkv, dqkv, f)
	checkGrad(t, "gates", gates, dgates, f)
	checkGrad(t, "ALog", aLog, da, f)
	checkGrad(t, "DtBias", dt, ddt, f)
}
