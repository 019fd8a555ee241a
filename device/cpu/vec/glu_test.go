package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// units lists the gated units that tests compare: the kernels, and the activation with its slope in
// float64.
var units = []struct {
	name    string
	forward func(y, gate, up []float32)
	grad    func(dgate, dup, y, dy, gate, up []float32)
	f       func(x float64) (y, slope float64)
}{
	{"SwiGLU", SwiGLU, SwiGLUGrad, func(x float64) (y, slope float64) {
		s := 1 / (1 + math.Exp(-x))
		return x * s, s * (1 + x*(1-s))
	}},
	{"GeGLU", GeGLU, GeGLUGrad, func(x float64) (y, slope float64) {
		k := math.Sqrt(2 / math.Pi)
		t := math.Tanh(k * (x + 0.044715*x*x*x))
		return x / 2 * (1 + t), (1+t)/2 + x/2*(1-t*t)*k*(1+3*0.044715*x*x)
	}},
	{"ErfGLU", ErfGLU, ErfGLUGrad, func(x float64) (y, slope float64) {
		phi := math.Erfc(-x/math.Sqrt2) / 2
		return x * phi, phi + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	}},
}

func TestUnits(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(8, 9))
		for _, n := range lengths {
			for _, unit := range units {
				x, u, y, z := newRow(rng, n), newRow(rng, n), newRow(rng, n), newRow(rng, n)
				f := func(i int) float64 { v, _ := unit.f(x.at(i)); return v }
				slope := func(i int) float64 { _, v := unit.f(x.at(i)); return v }
				out := y.copy()
				unit.forward(out.v(), x.v(), u.v())
				out.check(t, unit.name, func(i int) float64 { return f(i) * u.at(i) })
				value := out.copy()
				dg, du, act := x.copy(), u.copy(), y.copy()
				unit.grad(dg.v(), du.v(), act.v(), act.v(), dg.v(), du.v()) // everything in place
				dg.check(t, unit.name+"Grad gate", func(i int) float64 { return y.at(i) * u.at(i) * slope(i) })
				du.check(t, unit.name+"Grad up", func(i int) float64 { return y.at(i) * f(i) })
				act.check(t, unit.name+"Grad y", func(i int) float64 { return f(i) * u.at(i) })
				// Bits of gradients must not depend on which of the two a backward reads.
				if !slices.Equal(act.v(), value.v()) {
					t.Fatalf("%s, %d elements: the gradient's y has other bits than the forward's", unit.name, n)
				}
				unit.grad(out.v(), z.copy().v(), nil, y.v(), x.v(), u.v())
				out.check(t, unit.name+"Grad", func(i int) float64 { return y.at(i) * u.at(i) * slope(i) })
			}
		}
	})
}

// TestGeGLURange: both GELUs are accurate from −12 to 12. The error has three parts: the four
// roundings of the argument z, times less than 0.3; the exponential, 2e-7; and the last products.
// The slope also has x·dz/dx, up to 12 where it matters, times 1 − σ, which has the error of a
// number near 1. The exact GELU's polynomial adds at most 1e-7.
func TestGeGLURange(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		var x []float32
		for v := float32(-12); v < 12; v += 0.0037 {
			x = append(x, v)
		}
		ones, y, dx, dup := make([]float32, len(x)), make([]float32, len(x)), make([]float32, len(x)), make([]float32, len(x))
		for i := range ones {
			ones[i] = 1
		}
		for _, u := range units[1:] {
			u.forward(y, x, ones)
			u.grad(dx, dup, nil, ones, x, ones)
			for i, v := range x {
				want, slope := u.f(float64(v))
				if math.Abs(float64(y[i])-want) > 3e-7*(1+math.Abs(want)) || math.Abs(float64(dx[i])-slope) > 2e-6 || math.Abs(float64(dup[i])-want) > 3e-7*(1+math.Abs(want)) {
					t.Fatalf("%s: f(%v) = %v and slope %v, want %v and %v; gradient of up %v", u.name, v, y[i], dx[i], want, slope, dup[i])
				}
			}
		}
	})
}

func TestUnitExtremes(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, unit := range units {
			x := []float32{-1e20, -1e13, -1e4, -200, -87, 0, 87, 200, 1e4, 1e13, 1e20, float32(math.NaN())}
			y, ones := make([]float32, len(x)), make([]float32, len(x))
			for i := range ones {
				ones[i] = 1
			}
			unit.forward(y, x, ones)
			want := []float32{0, 0, 0, 0, 0, 0, 87, 200, 1e4, 1e13, 1e20}
			for i, w := range want { // a sigmoid is never less than e^−87 = 1.7e-38
				if math.Abs(float64(y[i]-w)) > 2e-7*math.Abs(float64(w))+2e-38*math.Abs(float64(x[i])) {
					t.Errorf("%s of %v is %v, want %v", unit.name, x[i], y[i], w)
				}
			}
			if nan := y[len(y)-1]; nan == nan {
				t.Errorf("%s of NaN is %v", unit.name, nan)
			}
			dx, dup := make([]float32, len(x)), make([]float32, len(x))
			unit.grad(dx, dup, nil, ones, x, ones)
			for i, w := range []float32{0, 0, 0, 0, 0, 0.5, 1, 1, 1, 1, 1} {
				if !(math.Abs(float64(dx[i]-w)) <= 1e-6) {
					t.Errorf("slope of %s at %v is %v, want %v", unit.name, x[i], dx[i], w)
				}
			}
		}
	})
}

func TestSoftcap(t *testing.T) {
	inf := float32(math.Inf(1))
	x := []float32{0, 1e-30, -1e-30, 400, -400, inf, -inf, 0.7071067, 0.7071069}
	for v := float32(-20); v < 20; v += 0.0137 {
		x = append(x, v)
	}
	const limit, scale = 3, 0.5
	y, slope := make([]float32, len(x)), make([]float32, len(x))
	for i := range slope {
		slope[i] = 2
	}
	Softcap(y, x, scale, limit)
	SoftcapGrad(slope, y, limit)
	for i, v := range x {
		th := math.Tanh(scale * float64(v) / limit)
		// Five fp32 roundings (6e-8 each) and an exponential (2e-7) stay below 6e-7. The slope's
		// error is relative to 1.
		if math.Abs(float64(y[i])-limit*th) > 6e-7*math.Abs(limit*th) || math.Abs(float64(slope[i])-2*(1-th*th)) > 2e-6 {
			t.Errorf("softcap(%v) is %v with slope %v, want %v and %v", v, y[i], slope[i], limit*th, 2*(1-th*th))
		}
	}
	nan := []float32{float32(math.NaN())}
	if Softcap(nan, nan, 1, 1); nan[0] == nan[0] {
		t.Error("softcap of NaN is a number")
	}
}
