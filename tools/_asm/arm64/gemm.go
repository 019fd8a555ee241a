package main

import (
	"fmt"

	"mt/tools/asm/neon"
)

// gemm generates the functions of package gemm: matrix product kernels, dot products and
// conversions.
func gemm() {
	for h := 1; h <= productRows; h++ {
		kernel(h)
	}
	dots("F32", "float32")
	dots("BF16", "uint16")
	widen("widenNEON", "func(to *float32, from *uint16, n int)")
	narrow("narrowNEON")
}

// unroll is how many elements of K, the dimension that a matrix product sums over, one iteration of
// a kernel's loop processes. An iteration also prefetches two cache lines of B, and two of the next
// part of A.
const unroll = 16

// kernel generates the product d = a·b + c for h rows and one whole panel of b (productColumns
// packed columns).
func kernel(h int) {
	f := neon.Begin(fmt.Sprintf("kernelNEONx%d", h),
		"func(k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, panel, block, across, down uintptr)",
		fmt.Sprintf("computes %d rows of %d columns, all of them: see kernelFunc.", h, productColumns))
	args := f.Args("k", "b", "panel", "block", "across", "down", "d", "ldd", "a", "lda")
	k, b, panel, block, second, down, row, ldd := args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7]
	f.Shift(2, args[9])
	f.Shift(2, ldd)
	f.AddReg(block, second)
	rows := rowsFrom(f, h, args[8], args[9])
	p := newProduct(f, h, 4*productColumns, b)
	p.clear()

	// The loop also prefetches the rows of d, one in each iteration, so that the prefetches do not
	// delay the loads of a and b.
	turn, tail, single, finish, store := f.Label("block"), f.Label("tail"), f.Label("single"), f.Label("finish"), f.Label("store")
	f.Less(k, unroll, tail)
	f.Place(turn)
	f.Prefetch(panel, 0, 2)
	f.Prefetch(row, 0, 1)
	p.four(rows, 0)
	f.Prefetch(block, 0, 2)
	p.four(rows, 4)
	f.Prefetch(panel, 64, 2)
	p.four(rows, 8)
	f.Prefetch(second, 0, 2)
	p.four(rows, 12)
	p.move(rows, unroll)
	f.AddReg(ldd, row)
	f.Add(128, panel)
	f.AddReg(down, block)
	f.AddReg(down, second)
	f.Add(-unroll, k)
	f.NotLess(k, unroll, turn)
	f.Place(tail)
	f.Zero(k, finish)
	f.Place(single)
	p.one(rows)
	f.Add(-1, k)
	f.NotZero(k, single)

	f.Place(finish)
	c, ldc := panel, block // panel and block are no longer needed
	f.LoadArg("c", c)
	f.LoadArg("ldc", ldc)
	f.LoadArg("d", row)
	f.Shift(2, ldc)
	f.Zero(c, store)
	p.addTo(c, ldc)
	f.Place(store)
	p.store(row, ldd)
	f.Ret()
}

// dots generates the dot products of x with four rows of b. element is the Go type of b's elements (fp32 or bf16), and
// kind the end of the function's name. Each dot product has eight partial sums.
func dots(kind, element string) {
	f := neon.Begin("dotNEON"+kind, "func(d, x *float32, b *"+element+", offsets *[4]int, k int)",
		"sets d to the products of x and four rows, each so many bytes from b; k is a multiple of 8.")
	x, offsets, k := f.Arg("x"), f.Arg("offsets"), f.Arg("k")
	streams := []stream{{x, 4}}
	for r := range 4 {
		row := f.Arg("b")
		f.Scope(func() {
			offset := f.General()
			f.LoadGeneral(offsets, 8*r, offset)
			f.AddReg(offset, row)
		})
		streams = append(streams, stream{row, sizeOf[kind]})
	}
	acc := f.Regs(8)
	for _, a := range acc {
		f.Clear(a)
	}
	each(f, k, 8, streams, func() {
		left := newPair(f)
		f.Load2(x, 0, left[0], left[1])
		for r, row := range streams[1:] {
			f.Scope(func() {
				right := newPair(f)
				if kind == "BF16" {
					right = widened(f, row.p, 0)
				} else {
					f.Load2(row.p, 0, right[0], right[1])
				}
				f.FMLA(acc[2*r], left[0], right[0])
				f.FMLA(acc[2*r+1], left[1], right[1])
			})
		}
	})
	for r := range 4 {
		f.FADD(acc[r], acc[2*r], acc[2*r+1])
	}
	f.FADDP(acc[0], acc[0], acc[1])
	f.FADDP(acc[2], acc[2], acc[3])
	f.FADDP(acc[0], acc[0], acc[2])
	f.Store(acc[0], f.Arg("d"), 0)
	f.Ret()
}
