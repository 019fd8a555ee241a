package main

import "mt/tools/asm/neon"

// lanes is the number of elements that one iteration of an update in package optim processes.
const lanes = 8

// element holds the registers of a loop that updates weights element by element, as optimizers such as AdamW do.
type element struct {
	*neon.Func
	split   bool
	grad    string
	moments int

	// Constants: zero is set if grad is "Zero" (no gradient), exponent if there are moments, and half if the weights
	// are split.
	zero, exponent, half neon.V

	n, w, lo, m, v, g neon.R
	streams           []stream
}

// sizeOf gives the bytes of a gradient element for each gradient type.
var sizeOf = map[string]int{"F32": 4, "BF16": 2}

// newElement begins the function that updates weights by a rule, an optimizer's arithmetic for one element. Weights are
// fp32 or, with split, a bf16 high half and a 16-bit lower half. moments is how many fp32 numbers the rule keeps for an
// element. grad is the gradient's type; "Zero": none.
func newElement(rule string, moments int, split bool, grad string) *element {
	s := &element{split: split, grad: grad, moments: moments}
	if split {
		s.Func = neon.Begin(rule+"Split"+grad+"NEON", "func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *[8]float32)",
			"updates n elements of a pair of planes; n is a multiple of 8.")
		s.w, s.lo = s.Arg("hi"), s.Arg("lo")
		s.streams = append(s.streams, stream{s.w, 2}, stream{s.lo, 2})
	} else {
		s.Func = neon.Begin(rule+"Plain"+grad+"NEON", "func(w, m, v *float32, grad *byte, n int, c *[8]float32)",
			"updates n elements of an fp32 plane; n is a multiple of 8.")
		s.w = s.Arg("w")
		s.streams = append(s.streams, stream{s.w, 4})
	}
	if moments > 0 {
		s.m = s.Arg("m")
		s.streams = append(s.streams, stream{s.m, 4})
	}
	if moments > 1 {
		s.v = s.Arg("v")
		s.streams = append(s.streams, stream{s.v, 4})
	}
	if grad != "Zero" {
		s.g = s.Arg("grad")
		s.streams = append(s.streams, stream{s.g, sizeOf[grad]})
	}
	s.n = s.Arg("n")
	return s
}

// factors loads the numbers at the generated function's argument c, such as the learning rate, and
// broadcasts each to all lanes of a register. The registers are stored in to, in the order of the
// numbers; a nil skips a number.
func (s *element) factors(to ...*neon.V) {
	c := s.Arg("c")
	for i, r := range to {
		if r != nil {
			*r = s.Spread(c, 4*i)
		}
	}
	if s.grad == "Zero" {
		s.zero = s.Zeros()
	}
	if s.moments > 0 {
		s.exponent = s.Splat(0x7f800000)
	}
	if s.split {
		s.half = s.Splat(0x8000)
	}
}

// run generates the loop over all elements and ends the function. body generates the update of eight elements.
func (s *element) run(body func()) {
	each(s.Func, s.n, lanes, s.streams, body)
	s.Ret()
}

// gradient generates the load of eight gradients, converted to fp32.
func (s *element) gradient() pair {
	if s.grad == "BF16" {
		return widened(s.Func, s.g, 0)
	}
	return s.load(s.g)
}

// load generates the load of eight fp32 numbers at p.
func (s *element) load(p neon.R) pair {
	x := newPair(s.Func)
	s.Load2(p, 0, x[0], x[1])
	return x
}

// store generates the store of eight fp32 numbers to p.
func (s *element) store(x pair, p neon.R) { s.Store2(x[0], x[1], p, 0) }

// clipped generates the load of eight gradients, multiplied by clip, the factor of gradient clipping. For the gradient
// type "Zero" the result is zeros.
func (s *element) clipped(clip neon.V) pair {
	if s.grad == "Zero" {
		return pair{s.zero, s.zero}
	}
	g := s.gradient()
	for _, g := range g {
		s.FMUL(g, g, clip)
	}
	return g
}

// normal sets subnormal lanes of x to zero, because arithmetic with subnormal numbers is slow.
func (s *element) normal(x neon.V) {
	s.Scope(func() {
		mask := s.Reg()
		s.CMTST(mask, x, s.exponent)
		s.AND(x, x, mask)
	})
}

// weight generates the load of eight weights as fp32. A split weight is put together from the halves: hi·2^16 plus the
// signed lo, as integers.
func (s *element) weight() pair {
	if !s.split {
		return s.load(s.w)
	}
	w := widened(s.Func, s.w, 0)
	s.Scope(func() {
		lo := s.Reg()
		s.Load(s.lo, 0, lo)
		s.SADDW(w[0], w[0], lo)
		s.SADDW2(w[1], w[1], lo)
	})
	return w
}

// storeWeight generates the store of eight weights w, as fp32 or split into halves. It overwrites
// the registers of w.
func (s *element) storeWeight(w pair) {
	if !s.split {
		s.store(w, s.w)
		return
	}
	s.Scope(func() {
		hi, lo := s.Reg(), s.Reg()
		s.ADDHN(hi, w[0], s.half)
		s.ADDHN2(hi, w[1], s.half)
		s.UZP1(lo, w[0], w[1])
		s.Store(hi, s.w, 0)
		s.Store(lo, s.lo, 0)
	})
}
