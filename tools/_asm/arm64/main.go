// Command arm64 writes the assembly of a package for arm64 with NEON, which every such processor has. It is run by go
// generate. What each function computes is said where its twin for x86 is generated, in the folder of the package's name.
package main

import "mt/tools/asm/neon"

func main() {
	neon.Generate(map[string]func(){"optim": optim, "gemm": gemm, "vec": vec})
}

// stream is a pointer that moves with the elements, size bytes each, or half a byte where size is half.
type stream struct {
	p    neon.R
	size int
}

// each runs body over the n elements of the streams, a multiple of lanes, so many at a time.
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

// pair is eight fp32.
type pair [2]neon.V

// newPair are two fresh registers.
func newPair(f *neon.Func) pair { return pair{f.Reg(), f.Reg()} }

// widened reads eight bf16.
func widened(f *neon.Func, p neon.R, disp int) pair {
	x := newPair(f)
	f.Load(p, disp, x[1])
	f.SHLL(x[0], x[1])
	f.SHLL2(x[1], x[1])
	return x
}

// rounding has the constants of rounding to bf16.
type rounding struct{ one, half, quiet neon.V }

func newRounding(f *neon.Func) rounding {
	return rounding{f.Splat(1), f.Splat(0x7fff), f.Splat(0x400000)}
}

// round writes eight fp32 as bf16, rounded to nearest even, NaNs as quiet NaNs. It overwrites them.
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

// widen writes the conversion of n bf16 numbers to fp32; signature says in what order its arguments come.
func widen(name, signature string) {
	f := neon.Begin(name, signature, "sets the fp32 numbers to n bf16 ones; n is a multiple of 8.")
	from, to, n := f.Arg("from"), f.Arg("to"), f.Arg("n")
	each(f, n, 8, []stream{{to, 4}, {from, 2}}, func() {
		x := widened(f, from, 0)
		f.Store2(x[0], x[1], to, 0)
	})
	f.Ret()
}

// narrow writes the conversion back.
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
