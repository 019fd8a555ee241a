package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// widen takes whole registers only with AVX2, which cannot mask 16-bit loads.
func widen(v isa) {
	v.begin("widen", "func(dst *float32, src *uint16, n int)", "is dst = src, n bf16 elements (AVX2: a multiple of 8).")
	p := pointers("dst", "src")
	n := count("n")
	r := v.reg()
	v.each16(n, p[0], p[1], func(mask reg.Register) {
		if mask != nil {
			VPMOVZXWD_Z(at(p[1], 0), mask, r)
		} else {
			VPMOVZXWD(at(p[1], 0), r)
		}
		VPSLLD(Imm(16), r, r)
		v.store(r, at(p[0], 0), mask)
	})
	VZEROUPPER()
	RET()
}

// narrow rounds to nearest even and keeps NaNs as quiet NaNs.
func narrow(v isa) {
	v.begin("narrow", "func(dst *uint16, src *float32, n int)",
		"is dst = src rounded to bf16, n elements (AVX2: a multiple of 8).")
	p := pointers("dst", "src")
	n := count("n")
	one, half, quiet := v.bits(1), v.bits(0x7fff), v.bits(0x400000)
	y := v.reg()
	v.each16(n, p[1], p[0], func(mask reg.Register) {
		x := v.load(at(p[1], 0), mask)
		VPSRLD(Imm(16), x, y)
		if v.wide() {
			VPANDD(one, y, y)
			VPADDD(half, y, y)
			VPADDD(x, y, y)
			nan := K()
			VCMPPS(Imm(3), x, x, nan) // unordered
			VPORD(quiet, x, nan, y)
			VPSRLD(Imm(16), y, y)
			if mask == nil {
				VPMOVDW(y, at(p[0], 0))
			} else {
				VPMOVDW(y, mask, at(p[0], 0))
			}
			return
		}
		nan, q := YMM(), YMM()
		VPAND(one, y, y)
		VPADDD(half, y, y)
		VPADDD(x, y, y)
		VCMPPS(Imm(3), x, x, nan)
		VPOR(quiet, x, q)
		VBLENDVPS(nan, q, y, y)
		VPSRLD(Imm(16), y, y)
		VPACKUSDW(y, y, y)
		VPERMQ(Imm(0x08), y, y)
		VMOVUPS(y.AsX(), at(p[0], 0))
	})
	VZEROUPPER()
	RET()
}

// each16 loops over n fp32 elements at p4 and 16-bit elements at p2, one
// register at a time; only AVX-512 has a tail.
func (v isa) each16(n, p4, p2 reg.GPVirtual, body func(mask reg.Register)) {
	Label("one")
	CMPQ(n, U32(uint32(v.lanes)))
	JL(LabelRef("tail"))
	body(nil)
	ADDQ(U32(uint32(v.bytes())), p4)
	ADDQ(U32(uint32(v.bytes()/2)), p2)
	SUBQ(U32(uint32(v.lanes)), n)
	JMP(LabelRef("one"))
	Label("tail")
	if v.wide() {
		TESTQ(n, n)
		JE(LabelRef("done"))
		body(v.tailMask(n))
		Label("done")
	}
}

func add(v isa) {
	v.begin("add", "func(y, x *float32, n int)", "is y += x.")
	p := pointers("y", "x")
	v.each(count("n"), 4, p, func(_, d int, mask reg.Register) {
		y, x := v.load(at(p[0], d), mask), v.load(at(p[1], d), mask)
		VADDPS(x, y, y)
		v.store(y, at(p[0], d), mask)
	})
	VZEROUPPER()
	RET()
}

func scale(v isa) {
	v.begin("scale", "func(y, x *float32, n int, a float32)", "is y = a·x; y may be x.")
	p := pointers("y", "x")
	n, a := count("n"), v.broadcast("a")
	v.each(n, 4, p, func(_, d int, mask reg.Register) {
		x := v.load(at(p[1], d), mask)
		VMULPS(x, a, x)
		v.store(x, at(p[0], d), mask)
	})
	VZEROUPPER()
	RET()
}

func scaleMul(v isa) {
	v.begin("scaleMul", "func(y, x, w *float32, n int, a float32)", "is y = (a·x)·w, element by element; y may be x.")
	p := pointers("y", "x", "w")
	n, a := count("n"), v.broadcast("a")
	v.each(n, 4, p, func(_, d int, mask reg.Register) {
		x, w := v.load(at(p[1], d), mask), v.load(at(p[2], d), mask)
		VMULPS(x, a, x)
		VMULPS(w, x, x)
		v.store(x, at(p[0], d), mask)
	})
	VZEROUPPER()
	RET()
}

// accumulators makes four registers of zeros.
func (v isa) accumulators() [4]reg.VecVirtual {
	return [4]reg.VecVirtual{v.zero(), v.zero(), v.zero(), v.zero()}
}

// total folds four accumulators into their sum and returns from the function.
func (v isa) total(acc [4]reg.VecVirtual) {
	VADDPS(acc[1], acc[0], acc[0])
	VADDPS(acc[3], acc[2], acc[2])
	VADDPS(acc[2], acc[0], acc[0])
	v.result(v.fold(acc[0], VADDPS))
}

func dot(v isa) {
	v.begin("dot", "func(x, y *float32, n int) float32", "is Σ x·y.")
	p := pointers("x", "y")
	n, acc := count("n"), v.accumulators()
	v.each(n, 4, p, func(i, d int, mask reg.Register) {
		x, y := v.load(at(p[0], d), mask), v.load(at(p[1], d), mask)
		VFMADD231PS(x, y, acc[i])
	})
	v.total(acc)
}

func dot3(v isa) {
	v.begin("dot3", "func(x, y, w *float32, n int) float32", "is Σ x·y·w.")
	p := pointers("x", "y", "w")
	n, acc := count("n"), v.accumulators()
	v.each(n, 4, p, func(i, d int, mask reg.Register) {
		x, y, w := v.load(at(p[0], d), mask), v.load(at(p[1], d), mask), v.load(at(p[2], d), mask)
		VMULPS(w, y, y)
		VFMADD231PS(x, y, acc[i])
	})
	v.total(acc)
}

// normGrad is the last pass of the backward of RMSNorm over a row.
func normGrad(v isa, adds bool) {
	name, doc := "normGrad", "is dx = rstd·dy·w − c·x and dw += rstd·dy·x; dx may be dy."
	if adds {
		name, doc = "normGradAdd", "is dx += rstd·dy·w − c·x and dw += rstd·dy·x."
	}
	v.begin(name, "func(dx, dw, dy, x, w *float32, n int, rstd, c float32)", doc)
	p := pointers("dx", "dw", "dy", "x", "w")
	n, rstd, c := count("n"), v.broadcast("rstd"), v.broadcast("c")
	v.each(n, 2, p, func(_, d int, mask reg.Register) {
		dy, x := v.load(at(p[2], d), mask), v.load(at(p[3], d), mask)
		w, dw := v.load(at(p[4], d), mask), v.load(at(p[1], d), mask)
		VMULPS(rstd, dy, dy)
		VFMADD231PS(dy, x, dw)
		v.store(dw, at(p[1], d), mask)
		VMULPS(dy, w, dy)
		VFNMADD231PS(c, x, dy)
		if adds {
			dx := v.load(at(p[0], d), mask)
			VADDPS(dx, dy, dy)
		}
		v.store(dy, at(p[0], d), mask)
	})
	VZEROUPPER()
	RET()
}

// rotate keeps a register of cosines and sines while it goes over the heads.
func rotate(v isa) {
	v.begin("rotate", "func(x, cos, sin *float32, half, heads, stride int, sign float32)",
		"turns the pairs (x[i], x[i+half]) of heads heads, stride floats apart, by sign times their angles.")
	p := pointers("x", "cos", "sin")
	half, stride := count("half"), count("stride")
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
		c, s := v.load(at(p[1], 0), mask), v.load(at(p[2], 0), mask)
		VMULPS(sign, s, s)
		a, b, left := GP64(), GP64(), GP64()
		MOVQ(p[0], a)
		MOVQ(second, b)
		Load(Param("heads"), left)
		Label(label)
		x, y := v.load(at(a, 0), mask), v.load(at(b, 0), mask)
		s1, s2 := v.reg(), v.reg()
		VMULPS(s, y, s1)
		VFMSUB231PS(c, x, s1) // x·c − y·s
		VMULPS(s, x, s2)
		VFMADD231PS(c, y, s2) // y·c + x·s
		v.store(s1, at(a, 0), mask)
		v.store(s2, at(b, 0), mask)
		ADDQ(stride, a)
		ADDQ(stride, b)
		DECQ(left)
		JNE(LabelRef(label))
	})
	VZEROUPPER()
	RET()
}
