package main

import "mt/tools/asm/neon"

// This file generates ARM assembly for quantized optimizer moments, which are stored as 8-bit or
// 4-bit codes. NEON has no gather instruction. So the 8-bit functions read the table word by word
// and combine the words in registers. The 4-bit decoder keeps its whole table in registers.

// codes generates the functions that encode and decode quantized optimizer moments.
func codes() {
	decode()
	decode16()
	encode("encodeNEON", "a byte each", 8)
	encode("encode16NEON", "two a byte", 4)
	greatest()
}

// four gathers the first lanes of the four registers of x in the four lanes of x[0].
func four(f *neon.Func, x [4]neon.V) {
	f.ZIP1(x[0], x[0], x[1])
	f.ZIP1(x[2], x[2], x[3])
	f.ZIP1D(x[0], x[0], x[2])
}

// decode generates the decoder of 8-bit codes. A number is values[code]·scale.
func decode() {
	f := neon.Begin("decodeNEON", "func(values *float32, codes *byte, out *float32, n int, scale *float32)",
		"sets out to n numbers with these codes; n is a multiple of 16.")
	values, codes, out, n := f.Arg("values"), f.Arg("codes"), f.Arg("out"), f.Arg("n")
	scale := f.Spread(f.Arg("scale"), 0)
	each(f, n, 16, []stream{{codes, 1}, {out, 4}}, func() {
		for half := range 2 {
			f.Scope(func() {
				eight := f.General()
				f.LoadGeneral(codes, 8*half, eight)
				var sums pair
				for k := range sums {
					x := [4]neon.V(f.Regs(4))
					for i := range x {
						code := f.General()
						f.Field(eight, 32*k+8*i, 8, code)
						f.LoadAt(values, code, x[i])
					}
					four(f, x)
					f.FMUL(x[0], x[0], scale)
					sums[k] = x[0]
				}
				f.Store2(sums[0], sums[1], out, 32*half)
			})
		}
	})
	f.Ret()
}

// decode16 generates the decoder of 4-bit codes with a table of 16 values. The table is in registers by bytes: the i-th
// register holds byte i of every value.
func decode16() {
	f := neon.Begin("decode16NEON", "func(values *float32, codes *byte, out *float32, n int, scale *float32)",
		"sets out to n numbers with these codes, two a byte; n is a multiple of 16.")
	values, codes, out, n := f.Arg("values"), f.Arg("codes"), f.Arg("out"), f.Arg("n")
	scale, lower := f.Spread(f.Arg("scale"), 0), f.Splat(0x0f0f0f0f)
	planes := [4]neon.V(f.Regs(4))
	f.LoadPlanes(values, planes)
	each(f, n, 16, []stream{{codes, half}, {out, 4}}, func() {
		c, high := f.Reg(), f.Reg()
		f.Load8(codes, 0, c)
		f.USHR(high, c, 4)
		f.AND(high, high, lower) // also drops the bits of the next byte
		f.AND(c, c, lower)
		f.ZIP1B(c, c, high)
		b, w := f.Regs(4), f.Regs(4)
		for i := range b {
			f.TBL(b[i], planes[i], c)
		}
		f.ZIP1B(w[0], b[0], b[1]) // the lower halves of numbers 0–7
		f.ZIP2B(w[1], b[0], b[1])
		f.ZIP1B(w[2], b[2], b[3]) // the upper halves
		f.ZIP2B(w[3], b[2], b[3])
		f.ZIP1H(b[0], w[0], w[2])
		f.ZIP2H(b[1], w[0], w[2])
		f.ZIP1H(b[2], w[1], w[3])
		f.ZIP2H(b[3], w[1], w[3])
		for i := range b {
			f.FMUL(b[i], b[i], scale)
		}
		f.Store2(b[0], b[1], out, 0)
		f.Store2(b[2], b[3], out, 32)
	})
	f.Ret()
}

// half stands for half a byte. A stream whose elements have this size (see stream) has two 4-bit
// elements in each byte. No stream has elements of 0 bytes, so 0 is free for this meaning.
const half = 0

// finder holds the constants with which the encoder finds the code of a number. A number's upper bits select an entry
// of a table; see the function place in host/optim/codes.go.
type finder struct {
	scale, abs, least, most, span, lower, one neon.V
	table                                     neon.R // the table's base minus the offset of the first bucket, so the magnitude's upper bits index it directly
}

// leastMag and mostMag are the bits of the smallest and the largest fp32 magnitude that have a
// table entry. For numbers of one sign, the table has ofASign entries.
const (
	leastMag   = 0x34000000
	mostMag    = 0x3f800000
	lowerBits  = 16
	ofASign    = mostMag>>lowerBits - leastMag>>lowerBits + 1
	bytesShift = 2 // log2 of a table word's size
)

// words returns the codes of the four numbers at x + disp. The lowest byte of each lane holds the code; the upper bytes
// are undefined.
func (c *finder) words(f *neon.Func, x neon.R, disp int) neon.V {
	word := f.Reg()
	f.Scope(func() {
		y, sign, at, next := f.Reg(), f.Reg(), f.Reg(), f.Reg()
		f.Load(x, disp, y)
		f.FDIV(y, y, c.scale)
		f.SSHR(sign, y, 31)
		f.AND(y, y, c.abs)
		f.UMAX(y, y, c.least)
		f.UMIN(y, y, c.most)
		f.USHR(at, y, lowerBits)
		f.AND(next, sign, c.span)
		f.ADD(at, at, next)
		f.AND(y, y, c.lower)
		parts := [4]neon.V{word, f.Reg(), f.Reg(), f.Reg()}
		for k := range 2 {
			two, second := f.General(), f.General()
			f.ToGeneral(at, k, two)
			f.Field(two, 32, 32, second)
			f.LoadAt(c.table, two, parts[2*k])
			f.LoadAt(c.table, second, parts[2*k+1])
		}
		four(f, parts)
		f.USHR(next, word, 8) // where the neighbouring code begins
		f.CMHI(next, next, y)
		f.ORR(sign, sign, c.one) // 1, or −1 for a negative number
		f.BIC(sign, sign, next)
		f.ADD(word, word, sign)
	})
	return word
}

// encode generates the encoder for codes of 8 or 4 bits. The upper bits of a number select a table
// entry; the lower bits decide between the entry's code and the neighbouring code. `how` completes
// the generated function's doc.
func encode(name, how string, bits int) {
	f := neon.Begin(name, "func(table *uint32, x *float32, codes *byte, n int, scale *float32)",
		"sets codes to those of n numbers over the scale, "+how+"; n is a multiple of 16.")
	c := finder{table: f.Arg("table")}
	x, to, n := f.Arg("x"), f.Arg("codes"), f.Arg("n")
	c.scale = f.Spread(f.Arg("scale"), 0)
	c.abs, c.least, c.most, c.span, c.lower, c.one = f.Splat(0x7fffffff), f.Splat(leastMag), f.Splat(mostMag), f.Splat(ofASign), f.Splat(1<<lowerBits-1), f.Splat(1)
	f.Scope(func() {
		first := f.Constant(leastMag >> lowerBits << bytesShift)
		f.SubFrom(c.table, first)
		f.Copy(first, c.table)
	})
	size := 1
	if bits == 4 {
		size = half
	}
	each(f, n, 16, []stream{{x, 4}, {to, size}}, func() {
		var w [4]neon.V
		for i := range w {
			w[i] = c.words(f, x, 16*i)
		}
		f.UZP1(w[0], w[0], w[1])
		f.UZP1(w[2], w[2], w[3])
		f.UZP1B(w[0], w[0], w[2])
		if bits == 8 {
			f.Store(w[0], to, 0)
			return
		}
		f.USHR(w[1], w[0], 4) // the second of two codes beside the first
		f.ORR(w[0], w[0], w[1])
		f.UZP1B(w[0], w[0], w[0])
		f.Store8(w[0], to, 0)
	})
	f.Ret()
}

// greatest generates the search for the largest magnitude among n numbers.
func greatest() {
	f := neon.Begin("greatestNEON", "func(x *float32, n int, most *float32)",
		"sets most to the greatest magnitude of n numbers, of which a NaN is the greatest; n is a multiple of 16.")
	x, n, abs := f.Arg("x"), f.Arg("n"), f.Splat(0x7fffffff)
	most := f.Regs(4)
	for _, m := range most {
		f.Clear(m)
	}
	each(f, n, 16, []stream{{x, 4}}, func() {
		y := f.Regs(4)
		f.Load2(x, 0, y[0], y[1])
		f.Load2(x, 32, y[2], y[3])
		for i := range y {
			f.AND(y[i], y[i], abs)
			f.UMAX(most[i], most[i], y[i])
		}
	})
	f.UMAX(most[0], most[0], most[1])
	f.UMAX(most[2], most[2], most[3])
	f.UMAX(most[0], most[0], most[2])
	f.UMAXP(most[0], most[0], most[0])
	f.UMAXP(most[0], most[0], most[0])
	f.Store4(most[0], f.Arg("most"), 0)
	f.Ret()
}
