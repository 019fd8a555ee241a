package gemm

import (
	"math"
	"unsafe"
)

// Products of bf16 by bf16 need no widening on processors with VDPBF16PS. The instruction adds two products at once
// to each fp32 of a register. Consecutive elements of K are packed as pairs. The first element is in the upper half,
// because the instruction adds the product of the upper halves first.
//
// A product of two bf16 is exact in fp32, and each of the two sums is rounded to nearest even. So sums have the order
// and the bits of the fp32 kernels, with one exception: operands and sums below 2^-126 are flushed to 0.

// leastNormal is the smallest magnitude that VDPBF16PS does not flush to 0: the smallest normal
// fp32 number.
const leastNormal = 0x1p-126

// addPair returns acc plus the products of the upper, then of the lower halves of x and y. It is VDPBF16PS in plain
// Go; only a NaN's payload may differ. Source: Intel SDM, volume 2, VDPBF16PS.
func addPair(acc float32, x, y uint32) float32 {
	const upper = 0xffff0000
	acc = addFlushed(acc, x&upper, y&upper)
	return addFlushed(acc, x<<16, y<<16)
}

// addFlushed returns acc plus the product of two bf16, given as the bits x and y of fp32 numbers. The product is
// exact in float64. Rounding the float64 sum to fp32 equals rounding the exact sum once. If the float64 sum is
// inexact, its smaller part is below a quarter of the fp32 result's last place, and its larger part is an fp32
// number.
func addFlushed(acc float32, x, y uint32) float32 {
	a, b := flush(math.Float32frombits(x)), flush(math.Float32frombits(y))
	sum := float64(flush(acc)) + float64(a)*float64(b)
	// A sum is flushed if it is less than leastNormal when rounded to 24 bits. From the midpoint on it rounds up.
	if math.Abs(sum) < leastNormal-0x1p-151 {
		return float32(math.Copysign(0, sum))
	}
	return float32(sum)
}

// flush returns x, or a zero with x's sign if |x| is below leastNormal.
func flush(x float32) float32 {
	if x > -leastNormal && x < leastNormal {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// pairTrials are the cases of addsInOrder. Each case starts at 0 and calls addPair twice: with first and a pair of
// ones, and then with x and y.
var pairTrials = []struct{ first, x, y uint32 }{
	{pair(0x1p24, 0), pair(1, -0x1p24), pair(1, 1)},            // the upper half is added first, so the sum is 0
	{pair(0x1p24, 0), pair(-0x1p24, 1), pair(1, 1)},            // the sum is 1
	{pair(0x1p24, 0), pair(1, 1), pair(1, 1)},                  // two roundings to even
	{pair(0x1p24, 2), pair(1, 0), pair(1, 0)},                  // a rounding up to even
	{pair(0x1p24, 2), pair(3, -1), pair(1.5, 0x1p-10)},         // a rounding of more than half
	{pair(1.5, 0), pair(0x1.fep-1, 0x1.02p3), pair(3, -0x1p5)}, // exact products
	{pair(0x1.8p-126, 0), pair(-1, 1), pair(0x1p-126, 0x1p-125)},
	{pair(0x1p-126, 0), pair(-0x1p-75, 0), pair(0x1p-75, 0)}, // flushed when rounded
	{pair(0x1p-126, 0), pair(-0x1p-75, 0), pair(0x1p-76, 0)}, // rounded up to a normal number
	{pair(0, 0), pair(-0x1p-70, 0), pair(0x1p-70, 0)},
	{0x00400000, pair(1, 1), 0x00410001}, // operands that are flushed to 0
	{pair(0x1p127, 0), pair(0x1p127, -0x1p127), pair(1, 1)},
	{pair(1, 0), pair(float32(math.Inf(1)), float32(math.Inf(-1))), pair(1, 1)},
	{pair(1, 0), pair(0, 1), pair(float32(math.Inf(1)), 2)},
}

// pair returns two bf16 numbers, given as fp32, in one word: the first in its upper half.
func pair(upper, lower float32) uint32 {
	return math.Float32bits(upper)&0xffff0000 | math.Float32bits(lower)>>16
}

// addsInOrder reports whether a kernel for one row gives the sums of addPair. The cases depend on order, rounding and
// flushing to 0. A processor that differs in any of them fails, and its pair instruction is not used.
func addsInOrder(kernel kernelFunc) bool {
	const columns = 32
	for _, try := range pairTrials {
		a := [2]uint32{try.first, try.x}
		var b [2][columns]uint32
		for i := range columns {
			b[0][i], b[1][i] = pair(1, 1), try.y
		}
		var d [columns]float32
		kernel(2, (*float32)(unsafe.Pointer(&a)), 2, (*float32)(unsafe.Pointer(&b)), nil, 0, &d[0], columns, 1<<columns-1, 0, 0, 0, 0)
		want := addPair(addPair(0, try.first, pair(1, 1)), try.x, try.y)
		for _, got := range d {
			if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				return false
			}
		}
	}
	return true
}
