package oracle

import (
	"math"
	"math/rand/v2"
	"testing"
)

func random(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

func clone(x []float64) []float64 { return append([]float64(nil), x...) }

// checkGrad compares grad with central differences of f in every element of x. The
// error of a difference is of order h², and its rounding of order 1e-16/h.
func checkGrad(t *testing.T, name string, x, grad []float64, f func() float64) {
	t.Helper()
	const h = 1e-5
	for i := range x {
		was := x[i]
		x[i] = was + h
		up := f()
		x[i] = was - h
		down := f()
		x[i] = was
		if want := (up - down) / (2 * h); math.Abs(grad[i]-want) > 1e-7*(1+math.Abs(want)) {
			t.Fatalf("%s[%d] is %v, differences give %v", name, i, grad[i], want)
		}
	}
}

func TestRMSNormBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	n := Norm{Rows: 3, Groups: 2, Dim: 5, XStride: 12, YStride: 11, DXStride: 13, DYStride: 11, XBStride: 12, Eps: 1e-3}
	x, w, weights, residual := random(r, 36), random(r, 5), random(r, 33), random(r, 33)
	y, rstd := make([]float64, 33), make([]float64, 6)
	f := func() float64 {
		RMSNorm(y, rstd, x, w, residual, n)
		var s float64
		for i := range n.Rows {
			s += dot(y[i*n.YStride:][:10], weights[i*n.YStride:][:10])
		}
		return s
	}
	for _, n.Add = range []bool{false, true} {
		if n.Add {
			n.Offset = 1
		}
		f()
		dx, dw := random(r, 39), random(r, 5)
		was, wasW := clone(dx), clone(dw)
		RMSNormBackward(dx, dw, weights, x, w, clone(rstd), n)
		grad := make([]float64, 36)
		for i := range n.Rows {
			for c := range 10 {
				grad[i*n.XStride+c] = dx[i*n.DXStride+c]
				if n.Add {
					grad[i*n.XStride+c] -= was[i*n.DXStride+c]
				}
			}
		}
		checkGrad(t, "dx", x, grad, f)
		add(dw, -1, wasW)
		checkGrad(t, "dw", w, dw, f)
	}
}

func TestLayerNormBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	const rows, dim = 3, 5
	x, w, b, weights := random(r, rows*dim), random(r, dim), random(r, dim), random(r, rows*dim)
	y, stats := make([]float64, rows*dim), make([]float64, 2*rows)
	f := func() float64 {
		LayerNorm(y, stats, x, w, b, 1e-3)
		return dot(y, weights)
	}
	for _, adds := range []bool{false, true} {
		f()
		dx, dw := clone(weights), random(r, dim)
		was, dy := make([]float64, rows*dim), dx // written over dy
		if adds {
			dx, dy = random(r, rows*dim), weights
			was = clone(dx)
		}
		wasW := clone(dw)
		LayerNormBackward(dx, dw, dy, x, w, clone(stats), adds)
		add(dx, -1, was)
		add(dw, -1, wasW)
		checkGrad(t, "dx", x, dx, f)
		checkGrad(t, "dw", w, dw, f)
	}
}

func TestRoPEInverseIsTheGradient(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	const T, heads, dim, rotary, stride = 3, 2, 7, 4, 16
	angles := random(r, 5*rotary/2)
	cos, sin := make([]float64, len(angles)), make([]float64, len(angles))
	for i, a := range angles {
		sin[i], cos[i] = math.Sincos(a)
	}
	pos := []int32{4, 0, 2}
	x, weights := random(r, T*stride), random(r, T*stride)
	for _, interleaved := range []bool{false, true} {
		f := func() float64 {
			y := clone(x)
			RoPE(y, cos, sin, pos, T, heads, dim, rotary, stride, false, interleaved)
			return dot(y, weights)
		}
		grad := clone(weights)
		RoPE(grad, cos, sin, pos, T, heads, dim, rotary, stride, true, interleaved)
		checkGrad(t, "dx", x, grad, f)
	}
}

func TestGLUBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const T, F = 3, 4
	for _, activation := range []Activation{SiLU, GELUTanh} {
		gu, dy := random(r, 2*T*F), random(r, T*F)
		y := make([]float64, T*F)
		f := func() float64 {
			GLU(activation, y, gu, T, F)
			return dot(y, dy)
		}
		f()
		dgu, act := clone(gu), clone(dy)
		GLUBackward(activation, dgu, act, act, dgu, T, F)
		checkGrad(t, "dgu", gu, dgu, f)
		GLU(activation, y, gu, T, F)
		for i := range y {
			if y[i] != act[i] {
				t.Fatalf("y[%d] is %v, want %v", i, act[i], y[i])
			}
		}
	}
}

func TestActivateBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const n = 12
	for _, activation := range []Activation{SiLU, GELUTanh, GELU} {
		x, dy, y := random(r, n), random(r, n), make([]float64, n)
		f := func() float64 {
			Activate(activation, y, x)
			return dot(y, dy)
		}
		f()
		dx, act := clone(x), clone(dy)
		ActivateBackward(activation, dx, act, act, dx)
		checkGrad(t, "dx", x, dx, f)
		for i, want := range y {
			Activate(activation, y[i:i+1], x[i:i+1])
			if act[i] != y[i] {
				t.Fatalf("y[%d] is %v, want %v", i, act[i], want)
			}
		}
	}
}

func TestCrossEntropyGradient(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	const V = 6
	logits, targets, losses := random(r, 4*V), []int32{3, -100, 0, 5}, make([]float64, 4)
	for _, c := range []struct{ limit, smoothing, z float64 }{{}, {limit: 1.5}, {smoothing: 0.2}, {z: 0.3}, {1.5, 0.1, 0.02}} {
		f := func() float64 {
			CrossEntropy(logits, targets, losses, V, 1, c.limit, c.smoothing, c.z, true)
			return 0.3 * (losses[0] + losses[1] + losses[2] + losses[3])
		}
		grad := clone(logits)
		CrossEntropy(grad, targets, losses, V, 0.3, c.limit, c.smoothing, c.z, false)
		checkGrad(t, "dlogits", logits, grad, f)
	}
}

func TestPreferenceGradient(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for kind := 1; kind <= 3; kind++ {
		for _, sums := range [][]float64{random(r, 2), {-5, 5}} { // in the last pair the chosen document is far more likely
			reference, targets := [2]float64{-0.5, -0.25}, [2]int{3, 5}
			f := func() float64 {
				loss, _ := Preference(kind, 0.5, 0.25, [2]float64(sums), reference, targets)
				return loss
			}
			_, by := Preference(kind, 0.5, 0.25, [2]float64(sums), reference, targets)
			checkGrad(t, "sums", sums, by[:], f)
			if loss := f(); loss < 0 {
				t.Errorf("kind %d: the loss of %v is %v", kind, sums, loss)
			}
		}
	}
}

func TestAttentionBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, c := range []struct {
		window int
		limit  float64
	}{{0, 0}, {2, 0}, {0, 1.5}, {2, 0.7}} {
		s := Shape{CuQ: []int32{0, 1, 1, 5}, CuK: []int32{0, 1, 3, 9}, TQ: 5, Heads: 4, KVHeads: 2, Dim: 3,
			Scale: 0.7, Window: c.window, Softcap: c.limit, QStride: 13, KStride: 7, DQStride: 12, DKStride: 8}
		q, k, v, do := random(r, 5*13), random(r, 9*7), random(r, 9*7), random(r, 60)
		o, lse := make([]float64, 60), make([]float64, 20)
		f := func() float64 {
			Attention(o, lse, q, k, v, s)
			return dot(o, do)
		}
		f()
		dq, dk, dv := random(r, 60), random(r, 72), random(r, 72)
		AttentionBackward(dq, dk, dv, do, clone(o), clone(lse), q, k, v, s)
		spread := func(g []float64, rows, from, to, n int) []float64 {
			out := make([]float64, rows*to)
			for i := range rows {
				copy(out[i*to:i*to+n], g[i*from:i*from+n])
			}
			return out
		}
		checkGrad(t, "dq", q, spread(dq, 5, 12, 13, 12), f)
		checkGrad(t, "dk", k, spread(dk, 9, 8, 7, 6), f)
		checkGrad(t, "dv", v, spread(dv, 9, 8, 7, 6), f)
	}
}

func TestMatMulAndBias(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	const M, N, K = 2, 3, 4
	a, b, bias, weights := random(r, M*K), random(r, K*N), random(r, N), random(r, M*N)
	c, d := random(r, M*N), make([]float64, M*N)
	f := func() float64 {
		MatMul(d, a, b, c, bias, M, N, K, false, false)
		return dot(d, weights)
	}
	da, db, dbias := make([]float64, M*K), make([]float64, K*N), make([]float64, N)
	MatMul(da, weights, b, nil, nil, M, K, N, false, true)
	MatMul(db, a, weights, nil, nil, K, N, M, true, false)
	AddBiasGrad(dbias, weights, M, N)
	checkGrad(t, "dA", a, da, f)
	checkGrad(t, "dB", b, db, f)
	checkGrad(t, "dC", c, weights, f)
	checkGrad(t, "dbias", bias, dbias, f)
}

func TestScatterAddRowsIsTheGradientOfGatherRows(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const C = 3
	index, start, pos := []int32{1, 0, 1, 3}, []int32{0, 1, 3, 3, 4}, []int32{1, 0, 2, 3}
	rows, dy, y := random(r, 4*C), random(r, 4*C), make([]float64, 4*C)
	f := func() float64 {
		GatherRows(y, rows, index, C)
		return dot(y, dy)
	}
	drows := make([]float64, 4*C)
	ScatterAddRows(drows, dy, start, pos, C)
	checkGrad(t, "drows", rows, drows, f)
}

func TestShortConvBackward(t *testing.T) {
	for _, gated := range []bool{false, true} {
		r := rand.New(rand.NewPCG(6, 1))
		a := Conv{Cu: []int32{0, 1, 6, 8}, W: random(r, 5*3), Bias: random(r, 5), Channels: 5, Taps: 3, Gated: gated}
		width := a.width()
		a.Stride = width + 2
		x, dy, y := random(r, 8*a.Stride), random(r, 40), make([]float64, 40)
		f := func() float64 {
			a.ShortConv(y, x, nil)
			return dot(y, dy)
		}
		dx, dw, db := make([]float64, 8*(width+1)), make([]float64, 15), make([]float64, 5)
		a.ShortConvBackward(dx, dw, db, dy, x, width+1)
		grad := make([]float64, len(x))
		for i := range 8 {
			copy(grad[i*a.Stride:][:width], dx[i*(width+1):])
		}
		checkGrad(t, "x", x, grad, f)
		checkGrad(t, "W", a.W, dw, f)
		checkGrad(t, "Bias", a.Bias, db, f)
	}
}

// TestDeltaGoesOn: a sequence that is cut in two gives the same output as the whole, if the second
// part begins with the state that the first left.
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
	for _, byChannel := range []bool{false, true} {
		r := rand.New(rand.NewPCG(6, 3))
		a := Delta{Cu: []int32{0, 5, 6, 9}, KeyHeads: 2, Heads: 4, KeyDim: 3, ValueDim: 2, GateStride: 9, ByChannel: byChannel}
		decays := 4
		if byChannel {
			a.KeyHeads, decays, a.GateStride = 4, 12, 5
		}
		width := 6*a.KeyHeads + 8
		qkv, gates, aLog, dt, do := random(r, 9*width), random(r, 9*a.GateStride), random(r, 4), random(r, decays), random(r, 72)
		a.A, a.DA = random(r, 9*decays), make([]float64, 9*decays)
		o := make([]float64, 72)
		f := func() float64 {
			a.GatedDelta(o, nil, nil, qkv, gates, aLog, dt)
			return dot(o, do)
		}
		dqkv, dgates, da, ddt := make([]float64, len(qkv)), make([]float64, len(gates)), make([]float64, 4), make([]float64, decays)
		a.GatedDeltaBackward(dqkv, dgates, da, ddt, do, qkv, gates, aLog, dt)
		checkGrad(t, "qkv", qkv, dqkv, f)
		checkGrad(t, "gates", gates, dgates, f)
		checkGrad(t, "A", a.A, a.DA, f)
		checkGrad(t, "ALog", aLog, da, f)
		checkGrad(t, "DtBias", dt, ddt, f)
	}
}

// TestSSDGoesOn: a sequence that is cut in two gives the same output as the whole, if the second
// part begins with the state that the first left.
func TestSSDGoesOn(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 4))
	a := SSD{Cu: []int32{0, 9}, Groups: 1, Heads: 2, HeadDim: 3, StateDim: 4, DtStride: 5, DtMax: 100}
	xbc, dt, aLog, bias, d := random(r, 9*14), random(r, 9*5), random(r, 2), random(r, 2), random(r, 2)
	whole, parts, last, states := make([]float64, 54), make([]float64, 54), make([]float64, 24), make([]float64, 24)
	a.SSD(whole, states, nil, xbc, dt, aLog, bias, d)
	for _, at := range [][2]int{{0, 4}, {4, 9}} {
		a.Cu = []int32{0, int32(at[1] - at[0])}
		a.SSD(parts[at[0]*6:], states, last, xbc[at[0]*14:], dt[at[0]*5:], aLog, bias, d)
	}
	for i, v := range whole {
		if d := v - parts[i]; d > 1e-14 || d < -1e-14 {
			t.Fatalf("element %d is %v, in two parts %v", i, v, parts[i])
		}
	}
}

func TestSSDBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 5))
	a := SSD{Cu: []int32{0, 5, 6, 9}, Groups: 2, Heads: 4, HeadDim: 3, StateDim: 2, DtStride: 5, DtMin: 0.4, DtMax: 1.5}
	xbc, dt, aLog, bias, d, do := random(r, 9*20), random(r, 45), random(r, 4), random(r, 4), random(r, 4), random(r, 108)
	o := make([]float64, 108)
	f := func() float64 {
		a.SSD(o, make([]float64, 24), nil, xbc, dt, aLog, bias, d)
		return dot(o, do)
	}
	dxbc, ddt, da, db, dd := make([]float64, 180), make([]float64, 45), make([]float64, 4), make([]float64, 4), make([]float64, 4)
	a.SSDBackward(dxbc, ddt, da, db, dd, do, xbc, dt, aLog, bias, d)
	checkGrad(t, "xbc", xbc, dxbc, f)
	checkGrad(t, "dt", dt, ddt, f)
	checkGrad(t, "ALog", aLog, da, f)
	checkGrad(t, "DtBias", bias, db, f)
	checkGrad(t, "D", d, dd, f)
}

// TestUniform: numbers are uniform, and neighbouring columns, places, steps and seeds are
// uncorrelated. A mean of n independent numbers has the standard error σ/√n. Five standard errors,
// the limit, are exceeded once in two million.
func TestUniform(t *testing.T) {
	const n = 1 << 16
	draw := map[string]func(i int) float64{
		"columns": func(i int) float64 { return Uniform(7, 3, 11, i) },
		"places":  func(i int) float64 { return Uniform(7, 3, i, 5) },
		"steps":   func(i int) float64 { return Uniform(7, i, 11, 5) },
		"seeds":   func(i int) float64 { return Uniform(uint64(i)<<20, 3, 11, 5) },
	}
	for name, f := range draw {
		var mean, square, product float64
		var eighths [8]float64
		last := f(n)
		for i := range n {
			u := f(i)
			if !(u > -1 && u < 1) {
				t.Fatalf("%s: %v", name, u)
			}
			mean, square, product = mean+u/n, square+u*u/n, product+u*last/n
			eighths[int((u+1)*4)] += 1.0 / n
			last = u
		}
		off := func(what string, got, want, deviation float64) {
			if math.Abs(got-want) > 5*deviation/math.Sqrt(n) {
				t.Errorf("%s: %s is %v, want %v", name, what, got, want)
			}
		}
		off("the mean", mean, 0, math.Sqrt(1.0/3))
		off("the mean square", square, 1.0/3, math.Sqrt(1.0/5-1.0/9))
		off("the product of neighbours", product, 0, 1.0/3)
		for i, share := range eighths {
			off("the share of eighth "+string(rune('1'+i)), share, 1.0/8, math.Sqrt(7.0/64))
		}
	}
}

// TestAddNoise: the noise's size depends on the document's length, and the random numbers on the
// token's position in the step. So a part of a micro-batch gets the same noise as the whole.
func TestAddNoise(t *testing.T) {
	const C = 6
	cu := []int32{0, 2, 2, 11}
	whole := make([]float64, 11*C)
	AddNoise(whole, cu, 0, 100, 4, C, 9, 2)
	for i, v := range whole {
		length := 2.0
		if i/C >= 2 {
			length = 9
		}
		if want := 2 / math.Sqrt(length) * Uniform(9, 4, 100+i/C, i%C); v != want {
			t.Fatalf("element %d is %v, want %v", i, v, want)
		}
	}
	part := make([]float64, 3*C)
	AddNoise(part, cu, 5, 100, 4, C, 9, 2)
	for i, v := range part {
		if v != whole[5*C+i] {
			t.Fatalf("element %d of a part is %v, want %v", i, v, whole[5*C+i])
		}
	}
}
