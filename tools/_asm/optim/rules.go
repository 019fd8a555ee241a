package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// lion generates the Lion update. Its factors: clip, decay, β1, 1 − β1, β2, 1 − β2, rate.
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
		// d becomes the learning rate with the sign of c, or 0 if c is 0.
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

// sgd generates the SGD update, with or without momentum. Its factors: clip, decay, momentum coefficient, rate, and a
// mask: all bits set for Nesterov momentum.
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

// decayed returns g + decay·w, the gradient with weight decay.
func (s *element) decayed(w, decay, g reg.VecVirtual) reg.VecVirtual {
	e := s.Reg()
	VMULPS(decay, w, e)
	VADDPS(e, g, e)
	return e
}

// descend generates the store of w − rate·e, the new weights. It overwrites the registers of w and e.
func (s *element) descend(w, e, rate reg.VecVirtual, disp int) {
	VMULPS(rate, e, e)
	VSUBPS(e, w, w)
	s.storeWeight(w, disp)
}

// apply generates the last step of Muon for a matrix: it updates the weights from an orthogonalized update, which takes
// the place of the gradient. Its factors: decay, rate.
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

// averageAhead is how many bytes ahead of the loop the moving average is prefetched. The weights have just been written
// and are in the cache, so only the average comes from memory. On one core of an EPYC (Zen 5), an AdamW update with an
// average gained 5 % with 1 KiB, 10 % with 2 KiB, and 17 % with 4 to 32 KiB.
const averageAhead = 8 << 10

// average generates the update of an exponential moving average of the weights. The weights are read and do not change.
// Its factors: the interpolation weight, and a mask (see lerp).
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

// prepare generates the first step of Muon for a matrix. It updates the momentum from a gradient,
// and writes the matrix that the device then orthogonalizes. The gradient has type grad, the matrix
// type handed. The factors: clip, two pairs of interpolation weight and mask (see lerp), and a mask
// with all bits set for Nesterov momentum.
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

// lerp interpolates between a and b. It returns a + part·(b − a), or b + part·(b − a) in lanes in which all bits of far
// are set.
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

// round rounds x to bf16 with AVX2, as Round does with AVX-512. The result is in the lower halves of y's elements. one,
// half and quiet hold the constants of Round. It overwrites x.
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
