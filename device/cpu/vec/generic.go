package vec

import (
	"math"
	"unsafe"

	"mt/base/bf16"
)

// generic has every kernel in plain Go. Machines without assembly use it, and tests compare the assembly with it.
var generic = kernels{
	level: Generic, widen: genericWiden, narrow: genericNarrow, add: genericAdd,
	scale: genericScale, shift: genericShift, scaleMul: genericScaleMul, dot: genericDot, sum: genericSum, dot3: genericDot3,
	normGrad: genericNormGrad, normGradAdd: genericNormGradAdd, rotate: genericRotate, max: genericMax,
	expSum: genericExpSum(exp), sumExp: genericSumExp, softmaxStrip: softmaxRows(genericMax, genericExpSum(exp2)), gradStrip: gradRows(genericGradRow),
	swiglu: genericUnit(identity), geglu: genericUnit(geluArgument), erfglu: genericUnit(logit),
	tileRows: genericTiles(false), tileCols: genericTiles(true),
}

func span(p *float32, n int) []float32 { return unsafe.Slice(p, n) }

func genericWiden(dst *float32, src *uint16, n int) {
	d := span(dst, n)
	for i, s := range unsafe.Slice(src, n) {
		d[i] = bf16.Widen(s)
	}
}

func genericNarrow(dst *uint16, src *float32, n int) {
	d := unsafe.Slice(dst, n)
	for i, s := range span(src, n) {
		d[i] = bf16.Round(s)
	}
}

func genericAdd(y, x *float32, n int) {
	d := span(y, n)
	for i, v := range span(x, n) {
		d[i] += v
	}
}

func genericScale(y, x *float32, n int, a float32) {
	d := span(y, n)
	for i, v := range span(x, n) {
		d[i] = a * v
	}
}

func genericShift(y, x *float32, n int, a float32) {
	d := span(y, n)
	for i, v := range span(x, n) {
		d[i] = v + a
	}
}

func genericScaleMul(y, x, w *float32, n int, a float32) {
	d, ws := span(y, n), span(w, n)
	for i, v := range span(x, n) {
		d[i] = a * v * ws[i]
	}
}

func genericDot(x, y *float32, n int) float32 {
	var acc [4]float32
	ys := span(y, n)
	for i, v := range span(x, n) {
		acc[i&3] += v * ys[i]
	}
	return (acc[0] + acc[1]) + (acc[2] + acc[3])
}

func genericSum(x *float32, n int) float32 {
	var acc [4]float32
	for i, v := range span(x, n) {
		acc[i&3] += v
	}
	return (acc[0] + acc[1]) + (acc[2] + acc[3])
}

func genericDot3(x, y, w *float32, n int) float32 {
	var acc [4]float32
	ys, ws := span(y, n), span(w, n)
	for i, v := range span(x, n) {
		acc[i&3] += v * (ys[i] * ws[i])
	}
	return (acc[0] + acc[1]) + (acc[2] + acc[3])
}

func genericNormGrad(dx, dw, dy, x, w *float32, n int, rstd, c float32) {
	out, dws, dys, ws := span(dx, n), span(dw, n), span(dy, n), span(w, n)
	for i, v := range span(x, n) {
		g := dys[i] * rstd
		dws[i] += g * v
		out[i] = g*ws[i] - c*v
	}
}

func genericNormGradAdd(dx, dw, dy, x, w *float32, n int, rstd, c float32) {
	out, dws, dys, ws := span(dx, n), span(dw, n), span(dy, n), span(w, n)
	for i, v := range span(x, n) {
		g := dys[i] * rstd
		dws[i] += g * v
		out[i] += g*ws[i] - c*v
	}
}

func genericRotate(x, cos, sin *float32, half, heads, stride int, sign float32) {
	c, s := span(cos, half), span(sin, half)
	all := span(x, (heads-1)*stride+2*half)
	for h := range heads {
		a := all[h*stride:][:half]
		b := all[h*stride+half:][:half]
		for i := range half {
			u, v, t := a[i], b[i], sign*s[i]
			a[i], b[i] = u*c[i]-v*t, v*c[i]+u*t
		}
	}
}

func genericMax(x *float32, n int) float32 {
	m := float32(math.Inf(-1))
	for _, v := range span(x, n) {
		if v > m {
			m = v
		}
	}
	return m
}

// exp returns e^x by the same polynomial as the assembly (see tools/_asm/vec/exp.go).
func exp(x float32) float32 {
	const magic = 3 << 22
	switch {
	case x < -104:
		return 0
	case x > 89:
		return float32(math.Inf(1))
	case x != x:
		return x
	}
	n := float32(x*math.Log2E+magic) - magic
	r := x - n*0.693145751953125
	r -= n * 1.428606765330187e-06
	p := float32(0.0013814540579915047)
	for _, c := range [...]float32{0.00836874544620514, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552, 1, 1} {
		p = p*r + c
	}
	half := int32(n) >> 1 // 2^n as two factors, each of them a normal number
	p *= math.Float32frombits(uint32(int32(n)-half+127) << 23)
	return p * math.Float32frombits(uint32(half+127)<<23)
}

// exp2 returns 2^x by the same polynomial as the assembly.
func exp2(x float32) float32 {
	const magic = 3 << 22
	x = min(max(x, -127), 128)
	n := float32(x+magic) - magic
	r, p := x-n, float32(0.0001532646274426952)
	for _, c := range [...]float32{0.0013390806270763278, 0.009618505835533142, 0.05550359934568405, 0.24022647738456726, 0.6931471824645996, 1} {
		p = p*r + c
	}
	return p * math.Float32frombits(uint32(int32(n)+127)<<23)
}

// genericExpSum returns the kernel that writes power(scale·x − shift) and returns the sum.
func genericExpSum(power func(float32) float32) func(dst, x *float32, n int, scale, shift float32) float32 {
	return func(dst, x *float32, n int, scale, shift float32) float32 {
		var acc [4]float32
		d := span(dst, n)
		for i, v := range span(x, n) {
			e := power(scale*v - shift)
			d[i] = e
			acc[i&3] += e
		}
		return (acc[0] + acc[1]) + (acc[2] + acc[3])
	}
}

func genericSumExp(x *float32, n int, scale, shift float32) float32 {
	var acc [4]float32
	for i, v := range span(x, n) {
		acc[i&3] += exp(scale*v - shift)
	}
	return (acc[0] + acc[1]) + (acc[2] + acc[3])
}

// softmaxRows returns an implementation of SoftmaxStrip that works row by row. It calls most for the largest element of
// a row, and exp2Sum for the row's powers of 2 and their sum.
func softmaxRows(most func(x *float32, n int) float32, exp2Sum func(dst, x *float32, n int, scale, shift float32) float32) func(x *float32, stride, rows, n, most, width int, factor float32, top, sum *float32) {
	return func(x *float32, stride, rows, n, limit, width int, factor float32, top, sum *float32) {
		tops, sums := span(top, rows), span(sum, rows)
		all := span(x, (rows-1)*stride/4+width)
		for r := range rows {
			row, seen := all[r*stride/4:][:width], min(max(0, n+r), limit)
			tops[r] = max(tops[r], most(first(row), seen)*factor)
			sums[r] = exp2Sum(first(row), first(row), seen, factor, tops[r])
			clear(row[seen:])
		}
	}
}

// gradRows returns an implementation of GradStrip that works row by row and calls grad for each row.
func gradRows(grad func(x, dx *float32, n int, factor, scale, lse, delta float32)) func(x, dx *float32, stride, rows, n, most, width int, factor, scale float32, lse, delta *float32) {
	return func(x, dx *float32, stride, rows, n, most, width int, factor, scale float32, lse, delta *float32) {
		lses, deltas := span(lse, rows), span(delta, rows)
		all, grads := span(x, (rows-1)*stride/4+width), span(dx, (rows-1)*stride/4+width)
		for r := range rows {
			p, g, seen := all[r*stride/4:][:width], grads[r*stride/4:][:width], min(max(0, n+r), most)
			grad(first(p), first(g), seen, factor, scale, lses[r], deltas[r])
			clear(p[seen:])
			clear(g[seen:])
		}
	}
}

func genericGradRow(x, dx *float32, n int, factor, scale, lse, delta float32) {
	p, g := span(x, n), span(dx, n)
	for i, v := range p {
		p[i] = exp2(factor*v - lse)
		g[i] = p[i] * scale * (g[i] - delta)
	}
}

// argument is the function z of an activation of the form x·sigmoid(z(x)), such as SiLU or GELU. It
// returns z and the slope dz/dx. Implementations clamp x² at a value where the sigmoid is already 0
// or 1, so that 0·dz/dx stays 0.
type argument func(x float32) (z, slope float32)

func identity(x float32) (z, slope float32) { return x, 1 }

func geluArgument(x float32) (z, slope float32) {
	const line, cube = 1.5957691216057308, 0.044715 * 1.5957691216057308 // 2√(2/π)
	square := min(x*x, 1e4)
	return x * (line + cube*square), line + 3*cube*square
}

// logit returns the log of Φ(x)/Φ(−x), where Φ is the cumulative normal distribution. It is x times a polynomial in
// x², by Horner's rule with the derivative; see docs/decisions/2026-11-layer-norm.md.
func logit(x float32) (z, slope float32) {
	square := min(x*x, 30)
	var p, d float32
	for _, c := range [...]float32{-2.779469363001219e-11, 5.2709117071003675e-09, -3.0449308496827143e-07, 8.350795724254567e-06,
		-0.00011280125909252092, -5.9747755585704e-05, 0.07266046106815338, 1.5957716703414917} {
		d = d*square + p
		p = p*square + c
	}
	return x * p, p + 2*square*d
}

func genericUnit(f argument) unit {
	return unit{genericGLU(f), genericGLUGrad(f), genericGLUGradY(f)}
}

func genericGLU(f argument) func(y, gate, up *float32, n int) {
	return func(y, gate, up *float32, n int) {
		out, u := span(y, n), span(up, n)
		for i, v := range span(gate, n) {
			z, _ := f(v)
			out[i] = v / (1 + exp(-z)) * u[i]
		}
	}
}

func genericGLUGrad(f argument) func(dgate, dup, dy, gate, up *float32, n int) {
	grad := genericGLUGradY(f)
	return func(dgate, dup, dy, gate, up *float32, n int) { grad(dgate, dup, nil, dy, gate, up, n) }
}

func genericGLUGradY(f argument) func(dgate, dup, y, dy, gate, up *float32, n int) {
	return func(dgate, dup, y, dy, gate, up *float32, n int) {
		dg, du, d, g, u := span(dgate, n), span(dup, n), span(dy, n), span(gate, n), span(up, n)
		for i, v := range g {
			z, slope := f(v)
			e := 1 + exp(-z)
			s, active, grad, w := 1/e, v/e, d[i], u[i] // v/e as in genericGLU, so that y has the same bits
			if y != nil {
				span(y, n)[i] = active * w
			}
			du[i] = grad * active
			dg[i] = grad * w * (s + active*(1-s)*slope)
		}
	}
}

// genericTiles returns the kernels for tiles of 1, 2, 3 and 4 rows, in this order. cols: the kernels read A by columns.
// They work row by row, and add in the same order as the assembly.
func genericTiles(cols bool) []tileFunc {
	var funcs []tileFunc
	for h := 1; h <= 4; h++ {
		funcs = append(funcs, func(k int, a *float32, astride int, b *float32, bpanel int, c *float32, cstride, panels int, acc bool) {
			astride, bpanel, cstride = astride/4, bpanel/4, cstride/4
			row, step := astride, 1
			if cols {
				row, step = 1, astride
			}
			bs := span(b, (panels-1)*bpanel+k*Panel)
			out := span(c, (h-1)*cstride+panels*Panel)
			for r := range h {
				for p := range panels {
					genericTileRow(out[r*cstride+p*Panel:][:Panel], a, r*row, step, bs[p*bpanel:], k, acc)
				}
			}
		})
	}
	return funcs
}

// genericTileRow multiplies one row of A by one panel b and writes the row c, or adds to it if acc is set. The row's
// elements in a begin at element from and are step elements apart.
func genericTileRow(c []float32, a *float32, from, step int, b []float32, k int, acc bool) {
	var sum [Panel]float32
	if k > 0 {
		as := span(a, from+(k-1)*step+1)
		for i := range k {
			x := as[from+i*step]
			for j, y := range b[i*Panel : i*Panel+Panel] {
				sum[j] += x * y
			}
		}
	}
	for j, v := range sum {
		if acc {
			v += c[j]
		}
		c[j] = v
	}
}
