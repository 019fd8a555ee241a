package main

import "mt/tools/asm/neon"

// optim generates the functions of package optim. Their arithmetic equals the plain Go of the package, without fused
// operations.
func optim() {
	for _, split := range []bool{false, true} {
		for _, grad := range []string{"F32", "BF16", "Zero"} {
			adam(split, grad)
			lion(split, grad)
			sgd(split, grad)
			momentum(split, grad)
			if grad != "Zero" {
				apply(split, grad)
			}
		}
		average(split)
	}
	for _, grad := range []string{"F32", "BF16"} {
		prepare(grad, "F32")
		prepare(grad, "BF16")
		sum(grad)
	}
	widen("widenNEON", "func(from *uint16, to *float32, n int)")
	roundDrawn()
	codes()
}

// adam generates the AdamW update. Its factors: clip, decay (1 − learning rate · weight decay), 1 − β1, β2, 1 − β2,
// step (learning rate over bias correction 1), √bc2 (bc2 is bias correction 2), eps.
func adam(split bool, grad string) {
	s := newElement("adam", 2, split, grad)
	var clip, decay, beta1c, beta2, beta2c, step, rootbc2, eps neon.V
	s.factors(&clip, &decay, &beta1c, &beta2, &beta2c, &step, &rootbc2, &eps)
	s.run(func() {
		g, m, v, w := s.clipped(clip), s.load(s.m), s.load(s.v), s.weight()
		d := s.Reg()
		for i := range 2 {
			s.FSUB(d, g[i], m[i])
			s.FMUL(d, d, beta1c)
			s.FADD(m[i], m[i], d)
			s.normal(m[i])
			s.FMUL(v[i], v[i], beta2)
			s.FMUL(d, g[i], beta2c)
			s.FMUL(d, d, g[i])
			s.FADD(v[i], v[i], d)
		}
		s.store(m, s.m)
		s.store(v, s.v)
		for i := range 2 {
			root := v[i]
			s.FSQRT(root, root)
			s.FDIV(root, root, rootbc2)
			s.FADD(root, root, eps)
			s.FMUL(d, m[i], step)
			s.FDIV(d, d, root)
			s.FMUL(w[i], w[i], decay)
			s.FSUB(w[i], w[i], d)
		}
		s.storeWeight(w)
	})
}

// lion generates the Lion update. Its factors: clip, decay, β1, 1 − β1, β2, 1 − β2, rate.
func lion(split bool, grad string) {
	s := newElement("lion", 1, split, grad)
	var clip, decay, beta1, beta1c, beta2, beta2c, rate neon.V
	s.factors(&clip, &decay, &beta1, &beta1c, &beta2, &beta2c, &rate)
	sign := s.Splat(0x80000000)
	s.run(func() {
		g, m, w := s.clipped(clip), s.load(s.m), s.weight()
		c, d := s.Reg(), s.Reg()
		for i := range 2 {
			s.FMUL(c, m[i], beta1)
			s.FMUL(d, g[i], beta1c)
			s.FADD(c, c, d)
			s.FMUL(m[i], m[i], beta2)
			s.FMUL(d, g[i], beta2c)
			s.FADD(m[i], m[i], d)
			s.normal(m[i])
			// d becomes the learning rate with the sign of c, or 0 if c is 0.
			s.AND(d, c, sign)
			s.ORR(d, d, rate)
			s.FCMEQ0(c, c)
			s.BIC(d, d, c)
			s.FMUL(w[i], w[i], decay)
			s.FSUB(w[i], w[i], d)
		}
		s.store(m, s.m)
		s.storeWeight(w)
	})
}

// sgd generates the SGD update without momentum. Its factors: clip, decay, an unused momentum coefficient, rate.
func sgd(split bool, grad string) {
	s := newElement("sgd", 0, split, grad)
	var clip, decay, rate neon.V
	s.factors(&clip, &decay, nil, &rate)
	s.run(func() {
		g, w, e := s.clipped(clip), s.weight(), newPair(s.Func)
		for i := range 2 {
			s.decayed(e[i], w[i], decay, g[i])
		}
		s.descend(w, e, rate)
	})
}

// momentum generates the SGD update with momentum. Its factors: clip, decay, momentum coefficient, rate, and a mask:
// all bits set for Nesterov momentum.
func momentum(split bool, grad string) {
	s := newElement("momentum", 1, split, grad)
	var clip, decay, momentum, rate, nesterov neon.V
	s.factors(&clip, &decay, &momentum, &rate, &nesterov)
	s.run(func() {
		g, w, m, e := s.clipped(clip), s.weight(), s.load(s.m), newPair(s.Func)
		for i := range 2 {
			s.decayed(e[i], w[i], decay, g[i])
			s.FMUL(m[i], m[i], momentum)
			s.FADD(m[i], m[i], e[i])
			s.normal(m[i])
		}
		s.store(m, s.m)
		ahead := s.Reg()
		for i := range 2 {
			s.FMUL(ahead, m[i], momentum)
			s.FADD(ahead, e[i], ahead)
			s.BIT(m[i], ahead, nesterov)
		}
		s.descend(w, m, rate)
	})
}

// decayed sets e to g + decay·w, the gradient with weight decay.
func (s *element) decayed(e, w, decay, g neon.V) {
	s.FMUL(e, w, decay)
	s.FADD(e, g, e)
}

// descend generates the store of w − rate·e, the new weights. It overwrites the registers of both arguments.
func (s *element) descend(w, e pair, rate neon.V) {
	for i := range 2 {
		s.FMUL(e[i], e[i], rate)
		s.FSUB(w[i], w[i], e[i])
	}
	s.storeWeight(w)
}

// apply generates the last step of Muon for a matrix: it updates the weights from an orthogonalized update, which takes
// the place of the gradient. Its factors: decay, rate.
func apply(split bool, grad string) {
	s := newElement("apply", 0, split, grad)
	var decay, rate neon.V
	s.factors(&decay, &rate)
	s.run(func() {
		w := s.weight()
		for _, w := range w {
			s.FMUL(w, w, decay)
		}
		s.descend(w, s.gradient(), rate)
	})
}

// average generates the update of an exponential moving average of the weights. The weights are read and do not change.
// Its factors: the interpolation weight, and a mask (see lerp).
func average(split bool) {
	s := newElement("average", 1, split, "Zero")
	var part, far neon.V
	s.factors(&part, &far)
	s.run(func() {
		w, m := s.weight(), s.load(s.m)
		for i := range 2 {
			s.lerp(m[i], m[i], w[i], part, far)
			s.normal(m[i])
		}
		s.store(m, s.m)
	})
}

// prepare generates the first step of Muon for a matrix. It updates the momentum from a gradient,
// and writes the matrix that the device then orthogonalizes. The gradient has type grad, the matrix
// type handed. The factors: clip, two pairs of interpolation weight and mask (see lerp), and a mask
// with all bits set for Nesterov momentum.
func prepare(grad, handed string) {
	s := &element{grad: grad, moments: 1}
	s.Func = neon.Begin("prepare"+grad+"To"+handed+"NEON", "func(m *float32, grad, to *byte, n int, c *[8]float32)",
		"moves n elements of a momentum; n is a multiple of 8.")
	to := s.Arg("to")
	s.m, s.g, s.n = s.Arg("m"), s.Arg("grad"), s.Arg("n")
	s.streams = []stream{{s.m, 4}, {s.g, sizeOf[grad]}, {to, sizeOf[handed]}}
	var clip, part, far, ahead, farAhead, nesterov neon.V
	s.factors(&clip, &part, &far, &ahead, &farAhead, &nesterov)
	r := newRounding(s.Func)
	s.run(func() {
		e, m, next := s.clipped(clip), s.load(s.m), newPair(s.Func)
		for i := range 2 {
			s.lerp(next[i], m[i], e[i], part, far)
			s.normal(next[i])
		}
		s.store(next, s.m)
		for i := range 2 {
			s.lerp(m[i], e[i], next[i], ahead, farAhead)
			s.BIT(next[i], m[i], nesterov)
		}
		if handed == "F32" {
			s.store(next, to)
		} else {
			r.round(s.Func, next, to, 0)
		}
	})
}

// lerp interpolates between a and b. It sets the register `to` to a + part·(b − a), or to b + part·(b − a) in lanes in
// which all bits of far are set.
func (s *element) lerp(to, a, b, part, far neon.V) {
	s.Scope(func() {
		d, from := s.Reg(), s.Reg()
		s.FSUB(d, b, a)
		s.FMUL(d, d, part)
		s.MOV(from, a)
		s.BIT(from, b, far)
		s.FADD(to, from, d)
	})
}

// sumLanes is the number of partial sums, which are added up independently of each other.
const sumLanes = 32

// sum generates the sum of squares in fp64, with element i in partial sum i % sumLanes. The square is exact in fp64, so
// a fused multiply-add gives the same result.
func sum(kind string) {
	f := neon.Begin("sum"+kind+"NEON", "func(x *byte, n int, lanes *[32]float64)",
		"sets lanes to the sums of squares of n elements; n is a multiple of 32.")
	x, n, size := f.Arg("x"), f.Arg("n"), sizeOf[kind]
	acc := f.Regs(sumLanes / 2)
	for _, a := range acc {
		f.Clear(a)
	}
	each(f, n, sumLanes, []stream{{x, size}}, func() {
		for i := 0; i < sumLanes; i += 8 {
			f.Scope(func() {
				eight := newPair(f)
				if kind == "F32" {
					f.Load2(x, size*i, eight[0], eight[1])
				} else {
					eight = widened(f, x, size*i)
				}
				upper := f.Reg()
				for j, four := range eight {
					f.FCVTL2(upper, four)
					f.FCVTL(four, four)
					f.FMLA2D(acc[i/2+2*j], four, four)
					f.FMLA2D(acc[i/2+2*j+1], upper, upper)
				}
			})
		}
	})
	lanes := f.Arg("lanes")
	for i := 0; i < len(acc); i += 2 {
		f.Store2(acc[i], acc[i+1], lanes, 16*i)
	}
	f.Ret()
}

// roundDrawn generates the stochastic rounding of fp32 to bf16. One random number of SplitMix64 serves four numbers.
// The function roundGeneric of host/optim does the same in plain Go.
func roundDrawn() {
	const gamma, first, second uint64 = 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb
	f := neon.Begin("roundNEON", "func(from *float32, to *uint16, n int, states *[8]uint64)",
		"sets to to n numbers, rounded by the draws of this state and of those that follow; n is a multiple of 8.")
	from, to, n, state := f.Arg("from"), f.Arg("to"), f.Arg("n"), f.Arg("states")
	f.LoadGeneral(state, 0, state)
	grow, by1, by2 := f.Constant(gamma), f.Constant(first), f.Constant(second)
	exponent, quiet, zero := f.Splat(0x7f800000), f.Splat(0x400000), f.Zeros()
	each(f, n, 8, []stream{{from, 4}, {to, 2}}, func() {
		x, draw, mask, z := newPair(f), f.Reg(), f.Reg(), f.General()
		f.Load2(from, 0, x[0], x[1])
		for _, x := range x {
			f.Copy(state, z)
			f.XorShifted(z, 30)
			f.Multiply(by1, z)
			f.XorShifted(z, 27)
			f.Multiply(by2, z)
			f.XorShifted(z, 31)
			f.AddReg(grow, state)
			f.FromGeneral(z, draw)
			f.UADDW(draw, zero, draw)
			// A number whose exponent bits are all set is not rounded; a NaN becomes a quiet NaN.
			f.AND(mask, x, exponent)
			f.CMEQ(mask, mask, exponent)
			f.BIC(draw, draw, mask)
			f.FCMEQ(mask, x, x)
			f.BIC(mask, quiet, mask)
			f.ORR(x, x, mask)
			f.ADD(x, x, draw)
		}
		f.UZP2(x[0], x[0], x[1])
		f.Store(x[0], to, 0)
	})
	f.Ret()
}
