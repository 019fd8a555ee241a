package main

import (
	"math"

	"mt/tools/asm/neon"
)

// vec generates the functions of package vec.
func vec() {
	widen("widenNEON", "func(to *float32, from *uint16, n int)")
	narrow("narrowNEON")
	add()
	scale()
	shift()
	scaleMul()
	dot()
	sumOf()
	dot3()
	normGrad(false)
	normGrad(true)
	rotate()
	maxOf()
	natural := func(f *row) func(neon.V) { return f.newExp().apply }
	expSum("expSum", "exp", natural, true)
	expSum("sumExp", "exp", natural, false)
	expSum("exp2Sum", "2^", func(f *row) func(neon.V) { return f.newExp2().apply }, true)
	gradRow()
	for _, kind := range []string{swiglu, geglu, erfglu} {
		glu(kind)
		gluGrad(kind, false)
		gluGrad(kind, true)
	}
	for h := 1; h <= productRows; h++ {
		tile(h, false)
		tile(h, true)
	}
	transpose()
}

// row is a function of package vec that is being generated, with a loop over the elements of one or several rows.
type row struct {
	*neon.Func
	first neon.V // a mask with the first lane set
}

func newRow(name, signature, doc string) *row {
	return &row{Func: neon.Begin(name+"NEON", signature, doc)}
}

// place is the position of the elements that one piece of generated code processes: four elements, or a single one in
// the first lane of a register.
type place struct {
	*row
	disp int
	one  bool
	i    int // index of the group of four within an iteration
}

// each generates a loop over n elements of the rows whose addresses are p. body generates the work
// for one place. The loop processes unroll groups of four elements at a time, then single groups of
// four, then single elements. It changes n and p.
func (f *row) each(n neon.R, unroll int, p []neon.R, body func(at place)) {
	loop := func(count int, one bool) {
		turn, next := f.Label("turn"), f.Label("next")
		elems := 4 * count
		if one {
			elems = 1
		}
		f.Less(n, elems, next)
		f.Place(turn)
		for i := range count {
			f.Scope(func() { body(place{f, 16 * i, one, i}) })
		}
		for _, p := range p {
			f.Add(4*elems, p)
		}
		f.Add(-elems, n)
		f.NotLess(n, elems, turn)
		f.Place(next)
	}
	if unroll > 1 {
		loop(unroll, false)
	}
	loop(1, false)
	loop(1, true)
}

// load generates the load of the elements of the row p at this place. For a single element the other lanes are 0.
func (at place) load(p neon.R) neon.V {
	x := at.Reg()
	if at.one {
		at.Load4(p, at.disp, x)
	} else {
		at.Load(p, at.disp, x)
	}
	return x
}

// store generates the store of x to the row p at this place.
func (at place) store(x neon.V, p neon.R) {
	if at.one {
		at.Store4(x, p, at.disp)
	} else {
		at.Store(x, p, at.disp)
	}
}

// clear sets the unused lanes of x to 0 if the place is a single element. clears must have been called before.
func (at place) clear(x neon.V) {
	if at.one {
		at.AND(x, x, at.first)
	}
}

// clears makes the mask that place.clear needs, in a register that stays allocated to the end of
// the function.
func (f *row) clears() {
	f.first = f.Reg()
	f.Scope(func() {
		x := f.General()
		f.SetConstant(math.MaxUint32, x)
		f.FromGeneral(x, f.first)
	})
}

// constant returns a register that holds x in all lanes.
func (f *row) constant(x float32) neon.V { return f.Splat(math.Float32bits(x)) }

// accumulators returns n registers set to zero.
func (f *row) accumulators(n int) []neon.V {
	acc := make([]neon.V, n)
	for i := range acc {
		acc[i] = f.Zeros()
	}
	return acc
}

// total generates the end of the function, which returns the sum of all lanes of two or four registers.
func (f *row) total(acc []neon.V) {
	for n := len(acc) / 2; n > 0; n /= 2 {
		for i := range n {
			f.FADD(acc[i], acc[i], acc[i+n])
		}
	}
	f.FADDP(acc[0], acc[0], acc[0])
	f.FADDP(acc[0], acc[0], acc[0])
	f.Return(acc[0])
}

func add() {
	f := newRow("add", "func(y, x *float32, n int)", "is y += x.")
	p := f.Args("y", "x")
	f.each(f.Arg("n"), 4, p, func(at place) {
		y, x := at.load(p[0]), at.load(p[1])
		f.FADD(y, y, x)
		at.store(y, p[0])
	})
	f.Ret()
}

func scale() {
	f := newRow("scale", "func(y, x *float32, n int, a float32)", "is y = a·x; y may be x.")
	p, n, a := f.Args("y", "x"), f.Arg("n"), f.SpreadArg("a")
	f.each(n, 4, p, func(at place) {
		x := at.load(p[1])
		f.FMUL(x, a, x)
		at.store(x, p[0])
	})
	f.Ret()
}

func shift() {
	f := newRow("shift", "func(y, x *float32, n int, a float32)", "is y = x + a; y may be x.")
	p, n, a := f.Args("y", "x"), f.Arg("n"), f.SpreadArg("a")
	f.each(n, 4, p, func(at place) {
		x := at.load(p[1])
		f.FADD(x, x, a)
		at.store(x, p[0])
	})
	f.Ret()
}

func scaleMul() {
	f := newRow("scaleMul", "func(y, x, w *float32, n int, a float32)", "is y = (a·x)·w, element by element; y may be x.")
	p, n, a := f.Args("y", "x", "w"), f.Arg("n"), f.SpreadArg("a")
	f.each(n, 4, p, func(at place) {
		x, w := at.load(p[1]), at.load(p[2])
		f.FMUL(x, a, x)
		f.FMUL(x, x, w)
		at.store(x, p[0])
	})
	f.Ret()
}

func dot() {
	f := newRow("dot", "func(x, y *float32, n int) float32", "is Σ x·y.")
	p, n, acc := f.Args("x", "y"), f.Arg("n"), f.accumulators(4)
	f.each(n, 4, p, func(at place) {
		f.FMLA(acc[at.i], at.load(p[0]), at.load(p[1]))
	})
	f.total(acc)
}

func sumOf() {
	f := newRow("sum", "func(x *float32, n int) float32", "is Σ x.")
	p, n, acc := f.Args("x"), f.Arg("n"), f.accumulators(4)
	f.each(n, 4, p, func(at place) {
		f.FADD(acc[at.i], acc[at.i], at.load(p[0]))
	})
	f.total(acc)
}

func dot3() {
	f := newRow("dot3", "func(x, y, w *float32, n int) float32", "is Σ x·y·w.")
	p, n, acc := f.Args("x", "y", "w"), f.Arg("n"), f.accumulators(4)
	f.each(n, 4, p, func(at place) {
		x, y, w := at.load(p[0]), at.load(p[1]), at.load(p[2])
		f.FMUL(y, y, w)
		f.FMLA(acc[at.i], x, y)
	})
	f.total(acc)
}

// normGrad generates the last pass of the RMSNorm backward over a row: the gradients of the row and
// of the weight. With adds, the row's gradient is added to dx.
func normGrad(adds bool) {
	name, doc := "normGrad", "is dx = rstd·dy·w − c·x and dw += rstd·dy·x; dx may be dy."
	if adds {
		name, doc = "normGradAdd", "is dx += rstd·dy·w − c·x and dw += rstd·dy·x."
	}
	f := newRow(name, "func(dx, dw, dy, x, w *float32, n int, rstd, c float32)", doc)
	p, n, rstd, c := f.Args("dx", "dw", "dy", "x", "w"), f.Arg("n"), f.SpreadArg("rstd"), f.SpreadArg("c")
	f.each(n, 2, p, func(at place) {
		dw, dy, x, w := at.load(p[1]), at.load(p[2]), at.load(p[3]), at.load(p[4])
		f.FMUL(dy, rstd, dy)
		f.FMLA(dw, dy, x)
		at.store(dw, p[1])
		f.FMUL(dy, dy, w)
		f.FMLS(dy, c, x)
		if adds {
			f.FADD(dy, dy, at.load(p[0]))
		}
		at.store(dy, p[0])
	})
	f.Ret()
}

// rotate generates the rotary embedding of several heads of a token. It loads the cosines and sines of some elements
// once, and applies them to these elements of all heads.
func rotate() {
	f := newRow("rotate", "func(x, cos, sin *float32, half, heads, stride int, sign float32)",
		"turns the pairs (x[i], x[i+half]) of heads heads, stride floats apart, by sign times their angles.")
	p, half, heads, stride, sign := f.Args("x", "cos", "sin"), f.Arg("half"), f.Arg("heads"), f.Arg("stride"), f.SpreadArg("sign")
	f.Shift(2, stride)
	second := f.General()
	f.Copy(half, second)
	f.Shift(2, second)
	f.AddReg(p[0], second)
	f.each(half, 1, append(p, second), func(at place) {
		c, s, turn := at.load(p[1]), at.load(p[2]), f.Label("heads")
		f.FMUL(s, sign, s)
		a, b, left := f.General(), f.General(), f.General()
		f.Copy(p[0], a)
		f.Copy(second, b)
		f.Copy(heads, left)
		f.Place(turn)
		x, y, first := at.load(a), at.load(b), f.Reg()
		f.FMUL(first, x, c)
		f.FMLS(first, y, s)
		at.store(first, a)
		f.FMUL(y, y, c)
		f.FMLA(y, x, s)
		at.store(y, b)
		f.AddReg(stride, a)
		f.AddReg(stride, b)
		f.Add(-1, left)
		f.NotZero(left, turn)
	})
	f.Ret()
}

func maxOf() {
	f := newRow("max", "func(x *float32, n int) float32", "is the largest of x, −Inf for none; a NaN may be passed over.")
	p, n := f.Args("x"), f.Arg("n")
	acc := make([]neon.V, 4)
	for i := range acc {
		acc[i] = f.constant(float32(math.Inf(-1)))
	}
	f.each(n, 4, p, func(at place) {
		x := at.load(p[0])
		if at.one {
			f.DUP(x, x, 0)
		}
		f.FMAXNM(acc[at.i], acc[at.i], x)
	})
	f.FMAXNMP(acc[0], acc[0], acc[1])
	f.FMAXNMP(acc[2], acc[2], acc[3])
	f.FMAXNMP(acc[0], acc[0], acc[2])
	f.FMAXNMP(acc[0], acc[0], acc[0])
	f.FMAXNMP(acc[0], acc[0], acc[0])
	f.Return(acc[0])
}

// transpose generates the transposition of 16 rows of 16 floats, in squares of four by four.
func transpose() {
	f := neon.Begin("transposeNEON", "func(dst, src *float32, stride, blocks int)",
		"writes the columns of 16 rows of src, stride bytes apart, as rows of 16 floats, 32 floats apart; there are 16·blocks.")
	dst, src, stride, fours := f.Arg("dst"), f.Arg("src"), f.Arg("stride"), f.Arg("blocks")
	f.Shift(2, fours)
	turn := f.Label("four")
	f.Place(turn)
	p, in, mixed := f.General(), f.Regs(4), f.Regs(4)
	f.Copy(src, p)
	for r := 0; r < 16; r += 4 {
		for _, x := range in {
			f.Load(p, 0, x)
			f.AddReg(stride, p)
		}
		f.ZIP1(mixed[0], in[0], in[2])
		f.ZIP2(mixed[1], in[0], in[2])
		f.ZIP1(mixed[2], in[1], in[3])
		f.ZIP2(mixed[3], in[1], in[3])
		for c := range 4 {
			zip := f.ZIP1
			if c%2 == 1 {
				zip = f.ZIP2
			}
			zip(in[c], mixed[c/2], mixed[2+c/2])
			f.Store(in[c], dst, 128*c+4*r)
		}
	}
	f.Add(4*128, dst)
	f.Add(16, src)
	f.Add(-1, fours)
	f.NotZero(fours, turn)
	f.Ret()
}
