package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// element holds the registers of a loop that updates weights element by element, as optimizers such as AdamW do.
type element struct {
	isa
	split bool
	grad  string

	zero, exponent, sign, half reg.VecVirtual

	w, lo, m, v, g reg.GPVirtual
	streams        []stream
}

// unroll is how many registers of elements one iteration of the loop updates.
const unroll = 2

// newElement begins the function that updates weights by a rule, an optimizer's arithmetic for one element. Weights are
// fp32 or, with split, a bf16 high half and a 16-bit lower half. moments is how many fp32 numbers the rule keeps for an
// element. grad is the gradient's type; "Zero": none.
//
// The loop is bound by memory. Variants of AdamW were measured on an Ice Lake processor, relative to a copy of the
// moments. Non-temporal stores are 1.7 times slower, because the lines have been read and are in the cache. Prefetching
// 1 to 4 KiB ahead, and unrolling by 1 or 4, change nothing beyond the noise.
func newElement(v isa, rule string, moments int, split bool, grad string) *element {
	s := &element{isa: v, split: split, grad: grad}
	if split {
		v.Begin(rule+"Split"+grad, "func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *[8]float32)",
			"updates n elements of a pair of planes; n is a multiple of the lanes.")
		s.w, s.lo = Arg("hi"), Arg("lo")
		s.streams = append(s.streams, stream{s.w, 2}, stream{s.lo, 2})
	} else {
		v.Begin(rule+"Plain"+grad, "func(w, m, v *float32, grad *byte, n int, c *[8]float32)",
			"updates n elements of an fp32 plane; n is a multiple of the lanes.")
		s.w = Arg("w")
		s.streams = append(s.streams, stream{s.w, 4})
	}
	if moments > 0 {
		s.m = Arg("m")
		s.streams = append(s.streams, stream{s.m, 4})
	}
	if moments > 1 {
		s.v = Arg("v")
		s.streams = append(s.streams, stream{s.v, 4})
	}
	switch grad {
	case "F32":
		s.g = Arg("grad")
		s.streams = append(s.streams, stream{s.g, 4})
	case "BF16":
		s.g = Arg("grad")
		s.streams = append(s.streams, stream{s.g, 2})
	}
	return s
}

// factors loads the numbers at the generated function's argument c, such as the learning rate, and
// broadcasts each to all elements of a vector register. It sets the variables `to` to these
// registers, in the order of the numbers; a nil skips a number.
func (s *element) factors(to ...*reg.VecVirtual) {
	c := Arg("c")
	for i, r := range to {
		if r != nil {
			*r = s.broadcast(At(c, 4*i))
		}
	}
	s.zero, s.exponent, s.sign = s.Zero(), s.Splat(0x7f800000), s.Splat(0x80000000)
	if s.split {
		s.half = s.Splat(0x8000)
	}
}

// run generates the loop over all elements and ends the function. body generates the update of one register of
// elements, disp elements after the pointers.
func (s *element) run(body func(disp int)) {
	s.each(unroll, s.streams, body)
	End()
}

// clipped generates the load of a register of gradients, multiplied by clip, the factor of gradient clipping. For the
// gradient type "Zero" the result is zeros.
func (s *element) clipped(clip reg.VecVirtual, disp int) reg.VecVirtual {
	if s.grad == "Zero" {
		return s.zero
	}
	g := s.gradient(s.grad, s.g, disp)
	VMULPS(clip, g, g)
	return g
}

// normal sets subnormal lanes of x to zero. It overwrites spare. The registers zero and exponent hold constants: 0, and
// the exponent bits of an fp32.
func (v isa) normal(x, spare, zero, exponent reg.VecVirtual) {
	if v.Wide() {
		k := K()
		VPTESTMD(exponent, x, k)
		VMOVAPS_Z(x, k, x)
		return
	}
	VPAND(exponent, x, spare)
	VPCMPEQD(zero, spare, spare)
	VPANDN(x, spare, x)
}

// choose sets the bits of a that are set in mask to the bits of b. It overwrites b.
func choose(mask, a, b reg.VecVirtual) {
	VANDPS(mask, b, b)
	VANDNPS(a, mask, a)
	VORPS(a, b, a)
}

// weight generates the load of a register of weights as fp32. A split weight is put together from its halves.
func (s *element) weight(disp int) reg.VecVirtual {
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

// storeWeight generates the store of a register of weights, whole or in halves.
func (s *element) storeWeight(w reg.VecVirtual, disp int) {
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
	// VPACKUSDW saturates, so the upper halves are masked out first. The instruction works within 128 bits: hi 0–3, lo
	// 0–3, hi 4–7, lo 4–7.
	VPBLENDW(Imm(0xaa), s.zero, w, w)
	VPACKUSDW(w, hi, hi)
	VPERMQ(Imm(0xd8), hi, hi)
	VMOVDQU(hi.AsX(), At(s.w, 2*disp))
	VEXTRACTI128(Imm(1), hi, At(s.lo, 2*disp))
}
