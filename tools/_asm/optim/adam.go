package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// adamState holds the registers of the loop that updates weights by AdamW.
type adamState struct {
	*element
	clip, decay, beta1c, beta2, beta2c, step, rootbc2, eps reg.VecVirtual
}

// adam generates the AdamW update. Its factors: clip, decay (1 − learning rate · weight decay), 1 − β1, β2, 1 − β2,
// step (learning rate over bias correction 1), √bc2 (bc2 is bias correction 2), eps.
func adam(v isa, split bool, grad string) {
	s := &adamState{element: newElement(v, "adam", 2, split, grad)}
	clip, beta2c := &s.clip, &s.beta2c
	if grad == "Zero" {
		clip, beta2c = nil, nil // factors that only a gradient needs
	}
	s.factors(clip, &s.decay, &s.beta1c, &s.beta2, beta2c, &s.step, &s.rootbc2, &s.eps)
	s.run(s.body)
}

// body generates the update of one register of elements, which begin disp elements after the pointers.
func (s *adamState) body(disp int) {
	g := s.clipped(s.clip, disp)
	m := s.firstMoment(g, disp)
	root := s.secondMoment(g, disp)
	VMULPS(s.step, m, m)
	VDIVPS(root, m, m)
	w := s.weight(disp)
	VMULPS(s.decay, w, w)
	VSUBPS(m, w, w)
	s.storeWeight(w, disp)
}

// firstMoment generates the update of AdamW's first moment and returns the new value, m + (g − m)·(1 − β1). A subnormal
// result becomes zero.
func (s *adamState) firstMoment(g reg.VecVirtual, disp int) reg.VecVirtual {
	m, d := s.Reg(), s.Reg()
	VMOVUPS(At(s.m, 4*disp), m)
	VSUBPS(m, g, d)
	VMULPS(s.beta1c, d, d)
	VADDPS(d, m, m)
	s.normal(m, d, s.zero, s.exponent)
	VMOVUPS(m, At(s.m, 4*disp))
	return m
}

// secondMoment generates the update of AdamW's second moment v from the gradient g. It returns the divisor of the step,
// √v/√bc2 + eps.
func (s *adamState) secondMoment(g reg.VecVirtual, disp int) reg.VecVirtual {
	v, q := s.Reg(), s.Reg()
	VMULPS(At(s.v, 4*disp), s.beta2, v)
	if s.grad == "Zero" {
		VADDPS(s.zero, v, v)
	} else {
		VMULPS(s.beta2c, g, q)
		VMULPS(g, q, q)
		VADDPS(q, v, v)
	}
	VMOVUPS(v, At(s.v, 4*disp))
	VSQRTPS(v, v)
	VDIVPS(s.rootbc2, v, v)
	VADDPS(s.eps, v, v)
	return v
}
