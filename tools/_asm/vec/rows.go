package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// widen generates the conversion of bf16 to fp32. With AVX2, which has no masked 16-bit loads, it converts only whole
// registers.
func widen(v isa) {
	v.Begin("widen", "func(dst *float32, src *uint16, n int)", "is dst = src, n bf16 elements (AVX2: a multiple of 8).")
	p := Args("dst", "src")
	n := Arg("n")
	v.each16(n, 4, p[0], p[1], func(count int, mask reg.Register) {
		for i := range count {
			r := v.Reg()
			LoadBF16(At(p[1], i*v.Bytes()/2), r, mask)
			v.Store(r, At(p[0], i*v.Bytes()), mask)
		}
	})
	End()
}

// narrow generates the conversion of fp32 to bf16, rounded to nearest even; NaNs become quiet NaNs.
func narrow(v isa) {
	v.Begin("narrow", "func(dst *uint16, src *float32, n int)",
		"is dst = src rounded to bf16, n elements (AVX2: a multiple of 8).")
	p := Args("dst", "src")
	n := Arg("n")
	if !v.Wide() {
		narrowAVX2(n, p[0], p[1])
		return
	}
	one, half, quiet := v.bits(1), v.bits(0x7fff), v.bits(0x400000)
	y := v.Reg()
	v.each16(n, 1, p[1], p[0], func(_ int, mask reg.Register) {
		x := v.load(At(p[1], 0), mask)
		Round(x, y, K(), one, half, quiet)
		StoreLow(y, At(p[0], 0), mask)
	})
	End()
}

// narrowAVX2 is the rest of narrow for AVX2: two registers become one.
func narrowAVX2(n, dst, src reg.GPVirtual) {
	one, half, quiet := avx2.Splat(1), avx2.Splat(0x7fff), avx2.Splat(0x400000)
	avx2.each16(n, 2, src, dst, func(count int, _ reg.Register) {
		var y [2]reg.VecVirtual
		for i := range count {
			x, nan := avx2.load(At(src, 32*i), nil), YMM()
			y[i] = YMM()
			VPSRLD(Imm(16), x, y[i])
			VPAND(one, y[i], y[i])
			VPADDD(half, y[i], y[i])
			VPADDD(x, y[i], y[i])
			VCMPPS(Imm(3), x, x, nan)
			VPOR(quiet, x, x)
			VBLENDVPS(nan, x, y[i], y[i])
			VPSRLD(Imm(16), y[i], y[i])
		}
		if count == 1 {
			VPACKUSDW(y[0], y[0], y[0])
			VPERMQ(Imm(0x08), y[0], y[0])
			VMOVUPS(y[0].AsX(), At(dst, 0))
			return
		}
		VPACKUSDW(y[1], y[0], y[0])
		VPERMQ(Imm(0xd8), y[0], y[0])
		VMOVUPS(y[0], At(dst, 0))
	})
	End()
}

// each16 generates a loop over n elements, fp32 at p4 and 16-bit at p2: with AVX2 unroll registers at a time, then one
// at a time. With AVX2, n must fill whole registers: it has no masks for 16-bit elements. body generates the work for
// count registers.
func (v isa) each16(n reg.GPVirtual, unroll int, p4, p2 reg.GPVirtual, body func(count int, mask reg.Register)) {
	step := func(label, next string, count int) {
		Label(label)
		CMPQ(n, U32(uint32(count*v.Lanes)))
		JL(LabelRef(next))
		body(count, nil)
		ADDQ(U32(uint32(count*v.Bytes())), p4)
		ADDQ(U32(uint32(count*v.Bytes()/2)), p2)
		SUBQ(U32(uint32(count*v.Lanes)), n)
		JMP(LabelRef(label))
	}
	if !v.Wide() {
		step("many", "one", unroll)
	}
	step("one", "tail", 1)
	Label("tail")
	if v.Wide() {
		TESTQ(n, n)
		JE(LabelRef("done"))
		body(1, v.tailMask(n))
		Label("done")
	}
}

func add(v isa) {
	v.Begin("add", "func(y, x *float32, n int)", "is y += x.")
	p := Args("y", "x")
	v.each(Arg("n"), 4, p, func(_, d int, mask reg.Register) {
		y, x := v.load(At(p[0], d), mask), v.load(At(p[1], d), mask)
		VADDPS(x, y, y)
		v.Store(y, At(p[0], d), mask)
	})
	End()
}

func scale(v isa) {
	v.Begin("scale", "func(y, x *float32, n int, a float32)", "is y = a·x; y may be x.")
	p := Args("y", "x")
	n, a := Arg("n"), v.broadcast("a")
	v.each(n, 4, p, func(_, d int, mask reg.Register) {
		x := v.load(At(p[1], d), mask)
		VMULPS(x, a, x)
		v.Store(x, At(p[0], d), mask)
	})
	End()
}

func shift(v isa) {
	v.Begin("shift", "func(y, x *float32, n int, a float32)", "is y = x + a; y may be x.")
	p := Args("y", "x")
	n, a := Arg("n"), v.broadcast("a")
	v.each(n, 4, p, func(_, d int, mask reg.Register) {
		x := v.load(At(p[1], d), mask)
		VADDPS(x, a, x)
		v.Store(x, At(p[0], d), mask)
	})
	End()
}

func scaleMul(v isa) {
	v.Begin("scaleMul", "func(y, x, w *float32, n int, a float32)", "is y = (a·x)·w, element by element; y may be x.")
	p := Args("y", "x", "w")
	n, a := Arg("n"), v.broadcast("a")
	v.each(n, 4, p, func(_, d int, mask reg.Register) {
		x, w := v.load(At(p[1], d), mask), v.load(At(p[2], d), mask)
		VMULPS(x, a, x)
		VMULPS(w, x, x)
		v.Store(x, At(p[0], d), mask)
	})
	End()
}

// accumulators returns four registers of zeros.
func (v isa) accumulators() [4]reg.VecVirtual {
	return [4]reg.VecVirtual{v.Zero(), v.Zero(), v.Zero(), v.Zero()}
}

// total generates the end of the function, which returns the sum of all elements of the four registers.
func (v isa) total(acc [4]reg.VecVirtual) {
	VADDPS(acc[1], acc[0], acc[0])
	VADDPS(acc[3], acc[2], acc[2])
	VADDPS(acc[2], acc[0], acc[0])
	v.result(v.fold(acc[0], VADDPS))
}

func dot(v isa) {
	v.Begin("dot", "func(x, y *float32, n int) float32", "is Σ x·y.")
	p := Args("x", "y")
	n, acc := Arg("n"), v.accumulators()
	v.each(n, 4, p, func(i, d int, mask reg.Register) {
		x, y := v.load(At(p[0], d), mask), v.load(At(p[1], d), mask)
		VFMADD231PS(x, y, acc[i])
	})
	v.total(acc)
}

func sumOf(v isa) {
	v.Begin("sum", "func(x *float32, n int) float32", "is Σ x.")
	p := Args("x")
	n, acc := Arg("n"), v.accumulators()
	v.each(n, 4, p, func(i, d int, mask reg.Register) {
		VADDPS(v.load(At(p[0], d), mask), acc[i], acc[i])
	})
	v.total(acc)
}

func dot3(v isa) {
	v.Begin("dot3", "func(x, y, w *float32, n int) float32", "is Σ x·y·w.")
	p := Args("x", "y", "w")
	n, acc := Arg("n"), v.accumulators()
	v.each(n, 4, p, func(i, d int, mask reg.Register) {
		x, y, w := v.load(At(p[0], d), mask), v.load(At(p[1], d), mask), v.load(At(p[2], d), mask)
		VMULPS(w, y, y)
		VFMADD231PS(x, y, acc[i])
	})
	v.total(acc)
}

// normGrad generates the last pass of the RMSNorm backward over a row: the gradients of the row and
// of the weight. With adds, the row's gradient is added to dx.
func normGrad(v isa, adds bool) {
	name, doc := "normGrad", "is dx = rstd·dy·w − c·x and dw += rstd·dy·x; dx may be dy."
	if adds {
		name, doc = "normGradAdd", "is dx += rstd·dy·w − c·x and dw += rstd·dy·x."
	}
	v.Begin(name, "func(dx, dw, dy, x, w *float32, n int, rstd, c float32)", doc)
	p := Args("dx", "dw", "dy", "x", "w")
	n, rstd, c := Arg("n"), v.broadcast("rstd"), v.broadcast("c")
	v.each(n, 2, p, func(_, d int, mask reg.Register) {
		dy, x := v.load(At(p[2], d), mask), v.load(At(p[3], d), mask)
		w, dw := v.load(At(p[4], d), mask), v.load(At(p[1], d), mask)
		VMULPS(rstd, dy, dy)
		VFMADD231PS(dy, x, dw)
		v.Store(dw, At(p[1], d), mask)
		VMULPS(dy, w, dy)
		VFNMADD231PS(c, x, dy)
		if adds {
			dx := v.load(At(p[0], d), mask)
			VADDPS(dx, dy, dy)
		}
		v.Store(dy, At(p[0], d), mask)
	})
	End()
}

// rotate generates the rotary embedding of several heads of a token. It loads a register of cosines and one of sines
// once, and applies both to all heads.
func rotate(v isa) {
	v.Begin("rotate", "func(x, cos, sin *float32, half, heads, stride int, sign float32)",
		"turns the pairs (x[i], x[i+half]) of heads heads, stride floats apart, by sign times their angles.")
	p := Args("x", "cos", "sin")
	half, stride := Arg("half"), Arg("stride")
	sign := v.broadcast("sign")
	SHLQ(Imm(2), stride)
	second := GP64()
	MOVQ(half, second)
	SHLQ(Imm(2), second)
	ADDQ(p[0], second)
	ptrs := []reg.GPVirtual{p[0], p[1], p[2], second}
	v.each(half, 1, ptrs, func(_, _ int, mask reg.Register) {
		label := "heads"
		if mask != nil {
			label = "lastHeads"
		}
		c, s := v.load(At(p[1], 0), mask), v.load(At(p[2], 0), mask)
		VMULPS(sign, s, s)
		a, b, left := GP64(), GP64(), GP64()
		MOVQ(p[0], a)
		MOVQ(second, b)
		Load(Param("heads"), left)
		Label(label)
		x, y := v.load(At(a, 0), mask), v.load(At(b, 0), mask)
		s1, s2 := v.Reg(), v.Reg()
		VMULPS(s, y, s1)
		VFMSUB231PS(c, x, s1) // x·c − y·s
		VMULPS(s, x, s2)
		VFMADD231PS(c, y, s2) // y·c + x·s
		v.Store(s1, At(a, 0), mask)
		v.Store(s2, At(b, 0), mask)
		ADDQ(stride, a)
		ADDQ(stride, b)
		DECQ(left)
		JNE(LabelRef(label))
	})
	End()
}
