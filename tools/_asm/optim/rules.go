package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// lion writes the update by Lion. Its factors: clip, decay, β1, 1 − β1, β2, 1 − β2, rate.
func lion(v isa, split bool, grad string) {
	var clip, decay, beta1, beta1c, beta2, beta2c, rate reg.VecVirtual
	s := newElement(v, "lion", 1, split, grad)
	s.factors(&clip, &decay, &beta1, &beta1c, &beta2, &beta2c, &rate)
	s.run(func(disp int) {
		g, m, c, d := s.clipped(clip, disp), s.Reg(), s.Reg(), s.Reg()
		VMOVUPS(At(s.m, 4*disp), m)
		VMULPS(beta1, m, c)
		VMULPS(beta1c, g, d)
		VADDPS(d, c, c)
		VMULPS(beta2, m, m)
		VMULPS(beta2c, g, d)
		VADDPS(d, m, m)
		s.normal(m, d, s.zero, s.exponent)
		VMOVUPS(m, At(s.m, 4*disp))
		// The rate with the sign of c, or 0 where c is.
		VANDPS(s.sign, c, d)
		VORPS(rate, d, d)
		const notEqual = 4 // or unordered
		if s.Wide() {
			k := K()
			VCMPPS(Imm(notEqual), s.zero, c, k)
			VMOVAPS_Z(d, k, d)
		} else {
			VCMPPS(Imm(notEqual), s.zero, c, c)
			VANDPS(c, d, d)
		}
		w := s.weight(disp)
		VMULPS(decay, w, w)
		VSUBPS(d, w, w)
		s.storeWeight(w, disp)
	})
}

// sgd writes the update by SGD, with momentum or without. Its factors: clip, decay, momentum, rate, and a mask of
// all bits with Nesterov's momentum.
func sgd(v isa, withMomentum, split bool, grad string) {
	var clip, decay, momentum, rate, nesterov reg.VecVirtual
	if !withMomentum {
		s := newElement(v, "sgd", 0, split, grad)
		s.factors(&clip, &decay, nil, &rate)
		s.run(func(disp int) {
			w := s.weight(disp)
			s.descend(w, s.decayed(w, decay, s.clipped(clip, disp)), rate, disp)
		})
		return
	}
	s := newElement(v, "momentum", 1, split, grad)
	s.factors(&clip, &decay, &momentum, &rate, &nesterov)
	s.run(func(disp int) {
		w, m, ahead := s.weight(disp), s.Reg(), s.Reg()
		e := s.decayed(w, decay, s.clipped(clip, disp))
		VMULPS(At(s.m, 4*disp), momentum, m)
		VADDPS(e, m, m)
		s.normal(m, ahead, s.zero, s.exponent)
		VMOVUPS(m, At(s.m, 4*disp))
		VMULPS(momentum, m, ahead)
		VADDPS(ahead, e, ahead)
		choose(nesterov, m, ahead)
		s.descend(w, m, rate, disp)
	})
}

// decayed is g + decay·w.
func (s *element) decayed(w, decay, g reg.VecVirtual) reg.VecVirtual {
	e := s.Reg()
	VMULPS(decay, w, e)
	VADDPS(e, g, e)
	return e
}

// descend stores w − rate·e. It overwrites both.
func (s *element) descend(w, e, rate reg.VecVirtual, disp int) {
	VMULPS(rate, e, e)
	VSUBPS(e, w, w)
	s.storeWeight(w, disp)
}

// apply writes the update of a matrix by what the device has made, in place of a gradient. Its factors: decay, rate.
func apply(v isa, split bool, grad string) {
	var decay, rate reg.VecVirtual
	s := newElement(v, "apply", 0, split, grad)
	s.factors(&decay, &rate)
	s.run(func(disp int) {
		w := s.weight(disp)
		VMULPS(decay, w, w)
		s.descend(w, s.gradient(grad, s.g, disp), rate, disp)
	})
}

// averageAhead is how many bytes ahead of its use an average is asked for. The weights have just been written and are in the cache, so
// that it is the one stream from memory. On one core of an EPYC (Zen 5) an update by AdamW with an average gained 5 % by 1 KiB, 10 %
// by 2 KiB, and 17 % by 4 to 32 KiB.
const averageAhead = 8 << 10

// average writes the update of an average by the weights, which stay as they are. Its factors: one and a mask (see lerp).
func average(v isa, split bool) {
	var part, far reg.VecVirtual
	s := newElement(v, "average", 1, split, "Zero")
	s.factors(&part, &far)
	s.run(func(disp int) {
		PREFETCHT0(At(s.m, 4*disp+averageAhead))
		w, m, spare := s.weight(disp), s.Reg(), s.Reg()
		VMOVUPS(At(s.m, 4*disp), m)
		next := s.lerp(m, w, part, far)
		s.normal(next, spare, s.zero, s.exponent)
		VMOVUPS(next, At(s.m, 4*disp))
	})
}

// prepare writes the update of a matrix's momentum by a gradient of one type, and what it hands over in another. Its factors: clip,
// then twice a factor and a mask (see lerp), and a mask of all bits with Nesterov's momentum.
func prepare(v isa, grad, handed string) {
	v.Begin("prepare"+grad+"To"+handed, "func(m *float32, grad, to *byte, n int, c *[8]float32)",
		"moves n elements of a momentum; n is a multiple of the lanes.")
	size := map[string]int{"F32": 4, "BF16": 2}
	m, g, to := Arg("m"), Arg("grad"), Arg("to")
	s := &element{isa: v, grad: grad, g: g, m: m, streams: []stream{{m, 4}, {g, size[grad]}, {to, size[handed]}}}
	var clip, part, far, ahead, farAhead, nesterov reg.VecVirtual
	s.factors(&clip, &part, &far, &ahead, &farAhead, &nesterov)
	var one, half, quiet reg.VecVirtual
	if handed == "BF16" {
		one, half, quiet = v.Splat(1), v.Splat(0x7fff), v.Splat(0x400000)
	}
	s.run(func(disp int) {
		e, m, spare := s.clipped(clip, disp), s.Reg(), s.Reg()
		VMOVUPS(At(s.m, 4*disp), m)
		next := s.lerp(m, e, part, far)
		s.normal(next, spare, s.zero, s.exponent)
		VMOVUPS(next, At(s.m, 4*disp))
		choose(nesterov, next, s.lerp(e, next, ahead, farAhead))
		if handed == "F32" {
			VMOVUPS(next, At(to, 4*disp))
			return
		}
		if v.Wide() {
			Round(next, spare, K(), one, half, quiet)
			VPMOVDW(spare, At(to, 2*disp))
			return
		}
		v.round(next, spare, one, half, quiet)
		VPACKUSDW(spare, spare, spare)
		VPERMQ(Imm(0xd8), spare, spare)
		VMOVDQU(spare.AsX(), At(to, 2*disp))
	})
}

// lerp is a + part·(b − a) or, where far has its bits set, b + part·(b − a).
func (s *element) lerp(a, b, part, far reg.VecVirtual) reg.VecVirtual {
	d, from, other := s.Reg(), s.Reg(), s.Reg()
	VSUBPS(a, b, d)
	VMULPS(part, d, d)
	VMOVAPS(a, from)
	VMOVAPS(b, other)
	choose(far, from, other)
	VADDPS(d, from, from)
	return from
}

// round is Round with AVX2: it sets the elements of y to those of x as bf16, in their lower halves. It overwrites x.
func (v isa) round(x, y, one, half, quiet reg.VecVirtual) {
	nan := v.Reg()
	VCMPPS(Imm(3), x, x, nan) // unordered
	VPSRLD(Imm(16), x, y)
	VPAND(one, y, y)
	VPADDD(half, y, y)
	VPADDD(x, y, y)
	VPOR(quiet, x, x)
	VBLENDVPS(nan, x, y, y)
	VPSRLD(Imm(16), y, y)
}
