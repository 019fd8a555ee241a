package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// adamState is what the loop of an update keeps in registers.
type adamState struct {
	isa
	split bool
	grad  string

	clip, decay, beta1c, beta2, beta2c, step, rootbc2, eps reg.VecVirtual
	zero, exponent, half                                   reg.VecVirtual

	w, lo, m, v, g reg.GPVirtual
}

// adam writes the update of fp32 weights, plain or split, by a gradient. It is
// bound by memory. Tried and dropped, by their ratio to a copy of the moments on
// an Ice Lake: non-temporal stores make it 1.7 times slower (the lines are in the
// cache, having been read), prefetching 1 to 4 KiB ahead and unrolling by 1 or 4
// change nothing beyond the noise.
func adam(v isa, split bool, grad string) {
	s := &adamState{isa: v, split: split, grad: grad}
	name := "plain" + grad
	if split {
		name = "split" + grad
		v.Begin(name, "func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *[8]float32)",
			"updates n elements of a pair of planes; n is a multiple of the lanes.")
		s.w, s.lo = Arg("hi"), Arg("lo")
	} else {
		v.Begin(name, "func(w, m, v *float32, grad *byte, n int, c *[8]float32)",
			"updates n elements of an fp32 plane; n is a multiple of the lanes.")
		s.w = Arg("w")
	}
	s.m, s.v = Arg("m"), Arg("v")
	streams := []stream{{s.m, 4}, {s.v, 4}}
	if split {
		streams = append(streams, stream{s.w, 2}, stream{s.lo, 2})
	} else {
		streams = append(streams, stream{s.w, 4})
	}
	switch grad {
	case "F32":
		s.g = Arg("grad")
		streams = append(streams, stream{s.g, 4})
	case "BF16":
		s.g = Arg("grad")
		streams = append(streams, stream{s.g, 2})
	}
	s.constants()
	v.each(unroll, streams, s.body)
	VZEROUPPER()
	RET()
}

// unroll is how many registers a turn of the loop updates.
const unroll = 2

// constants fills the registers that do not change.
func (s *adamState) constants() {
	c := Arg("c")
	for i, r := range []*reg.VecVirtual{&s.clip, &s.decay, &s.beta1c, &s.beta2, &s.beta2c, &s.step, &s.rootbc2, &s.eps} {
		if s.grad == "Zero" && (i == 0 || i == 4) {
			continue // factors of the gradient
		}
		*r = s.broadcast(At(c, 4*i))
	}
	s.zero, s.exponent = s.Zero(), s.Splat(0x7f800000)
	if s.split {
		s.half = s.Splat(0x8000)
	}
}

// body updates one register, disp elements after the pointers.
func (s *adamState) body(disp int) {
	g := s.zero
	if s.grad != "Zero" {
		g = s.gradient(s.grad, s.g, disp)
		VMULPS(s.clip, g, g)
	}
	m := s.firstMoment(g, disp)
	root := s.secondMoment(g, disp)
	VMULPS(s.step, m, m)
	VDIVPS(root, m, m)
	w := s.weight(disp)
	VMULPS(s.decay, w, w)
	VSUBPS(m, w, w)
	s.storeWeight(w, disp)
}

// firstMoment is m + (g − m)·(1 − β1), zero where it is below the smallest
// normal number.
func (s *adamState) firstMoment(g reg.VecVirtual, disp int) reg.VecVirtual {
	m, d := s.Reg(), s.Reg()
	VMOVUPS(At(s.m, 4*disp), m)
	VSUBPS(m, g, d)
	VMULPS(s.beta1c, d, d)
	VADDPS(d, m, m)
	if s.Wide() {
		k := K()
		VPTESTMD(s.exponent, m, k)
		VMOVAPS_Z(m, k, m)
	} else {
		VPAND(s.exponent, m, d)
		VPCMPEQD(s.zero, d, d)
		VPANDN(m, d, m)
	}
	VMOVUPS(m, At(s.m, 4*disp))
	return m
}

// secondMoment updates v and returns √v/√bc2 + eps.
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

// weight reads weights as fp32.
func (s *adamState) weight(disp int) reg.VecVirtual {
	w := s.Reg()
	if !s.split {
		VMOVUPS(At(s.w, 4*disp), w)
		return w
	}
	lo := s.Reg()
	VPMOVZXWD(At(s.w, 2*disp), w)
	VPMOVSXWD(At(s.lo, 2*disp), lo)
	VPSLLD(Imm(16), w, w)
	VPADDD(lo, w, w)
	return w
}

// storeWeight writes weights back.
func (s *adamState) storeWeight(w reg.VecVirtual, disp int) {
	if !s.split {
		VMOVUPS(w, At(s.w, 4*disp))
		return
	}
	hi := s.Reg()
	VPADDD(s.half, w, hi)
	VPSRLD(Imm(16), hi, hi)
	if s.Wide() {
		VPMOVDW(w, At(s.lo, 2*disp))
		VPMOVDW(hi, At(s.w, 2*disp))
		return
	}
	// The pack saturates, so the upper halves go first. It works within 128
	// bits: hi 0–3, lo 0–3, hi 4–7, lo 4–7.
	VPBLENDW(Imm(0xaa), s.zero, w, w)
	VPACKUSDW(w, hi, hi)
	VPERMQ(Imm(0xd8), hi, hi)
	VMOVDQU(hi.AsX(), At(s.w, 2*disp))
	VEXTRACTI128(Imm(1), hi, At(s.lo, 2*disp))
}
