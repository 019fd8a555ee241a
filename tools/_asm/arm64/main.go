// Command arm64 generates NEON assembly for one of mt's packages; every arm64 processor has NEON.
// Run it with go generate. The x86 generator of the same package, in the folder tools/_asm/PACKAGE,
// documents what each function computes.
package main

import "mt/tools/asm/neon"

func main() {
	neon.Generate(map[string]func(){"optim": optim, "gemm": gemm, "vec": vec})
}

// stream is an array through which a generated loop goes: a pointer that advances with the elements. size is the bytes
// of an element, or half if two elements share a byte.
type stream struct {
	p    neon.R
	size int
}

// each generates a loop over n elements of all streams. body generates one iteration, which processes lanes elements;
// then the streams advance. n must be a multiple of lanes.
func each(f *neon.Func, n neon.R, lanes int, streams []stream, body func()) {
	loop, done := f.Label("loop"), f.Label("done")
	f.Less(n, lanes, done)
	f.Place(loop)
	f.Scope(body)
	for _, s := range streams {
		if s.size == half {
			f.Add(lanes/2, s.p)
			continue
		}
		f.Add(s.size*lanes, s.p)
	}
	f.Add(-lanes, n)
	f.NotLess(n, lanes, loop)
	f.Place(done)
}

// pair is eight fp32 numbers in two registers.
type pair [2]neon.V

// newPair returns two fresh registers.
func newPair(f *neon.Func) pair { return pair{f.Reg(), f.Reg()} }

// widened generates the load of eight bf16 numbers at p + disp, converted to fp32.
func widened(f *neon.Func, p neon.R, disp int) pair {
	x := newPair(f)
	f.Load(p, disp, x[1])
	f.SHLL(x[0], x[1])
	f.SHLL2(x[1], x[1])
	return x
}

// rounding holds the constants that round needs, in registers.
type rounding struct{ one, half, quiet neon.V }

func newRounding(f *neon.Func) rounding {
	return rounding{f.Splat(1), f.Splat(0x7fff), f.Splat(0x400000)}
}

// round generates the store of eight fp32 numbers to p + disp as bf16. They are rounded to nearest even, and NaNs
// become quiet NaNs. It overwrites the registers of x.
func (r rounding) round(f *neon.Func, x pair, p neon.R, disp int) {
	f.Scope(func() {
		sum, number := f.Reg(), f.Reg()
		for _, x := range x {
			f.USHR(sum, x, 16)
			f.AND(sum, sum, r.one)
			f.ADD(sum, sum, r.half)
			f.ADD(sum, sum, x)
			f.FCMEQ(number, x, x)
			f.ORR(x, x, r.quiet)
			f.BIT(x, sum, number)
		}
		f.UZP2(x[0], x[0], x[1])
		f.Store(x[0], p, disp)
	})
}

// widen generates a function that converts n bf16 numbers to fp32. signature is the function's Go signature, whose
// arguments must be named from, to and n.
func widen(name, signature string) {
	f := neon.Begin(name, signature, "sets the fp32 numbers to n bf16 ones; n is a multiple of 8.")
	from, to, n := f.Arg("from"), f.Arg("to"), f.Arg("n")
	each(f, n, 8, []stream{{to, 4}, {from, 2}}, func() {
		x := widened(f, from, 0)
		f.Store2(x[0], x[1], to, 0)
	})
	f.Ret()
}

// narrow generates the conversion of fp32 numbers to bf16.
func narrow(name string) {
	f := neon.Begin(name, "func(to *uint16, from *float32, n int)",
		"sets to to n numbers, rounded to the nearest bf16, halves to even, NaNs to quiet NaNs; n is a multiple of 8.")
	from, to, n, r := f.Arg("from"), f.Arg("to"), f.Arg("n"), newRounding(f)
	each(f, n, 8, []stream{{to, 2}, {from, 4}}, func() {
		x := newPair(f)
		f.Load2(from, 0, x[0], x[1])
		r.round(f, x, to, 0)
	})
	f.Ret()
}
