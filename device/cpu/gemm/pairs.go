package gemm

import (
	"math"
	"unsafe"
)

// Products of bf16 by bf16 need not be widened where there is VDPBF16PS, which adds two products at once to each fp32 of a
// register. Elements that follow each other in K are packed as pairs, the first in the upper half, since the instruction
// adds the product of the upper halves first. Each of the two sums is rounded, to nearest even, and a product of two bf16 is exact
// in fp32. So sums have the order of the fp32 kernels, and their bits too, except that a number below 2^-126, be it an operand
// or a sum, is 0.

// leastNormal is the smallest magnitude that is not taken for 0.
const leastNormal = 0x1p-126

// addPair is acc plus the products of the upper, then of the lower halves of x and y: the plain Go twin of VDPBF16PS. A NaN
// may have another payload there. Source: Intel SDM, volume 2, VDPBF16PS.
func addPair(acc float32, x, y uint32) float32 {
	const upper = 0xffff0000
	acc = addFlushed(acc, x&upper, y&upper)
	return addFlushed(acc, x<<16, y<<16)
}

// addFlushed is acc plus the product of the fp32 numbers with bits x and y, which are bf16. The product is exact in float64.
// The sum rounds to what it would round to at once: where it is not exact in float64 its smaller part is less than a quarter of the fp32 result's last
// place, and the larger one is an fp32 number itself.
func addFlushed(acc float32, x, y uint32) float32 {
	a, b := flush(math.Float32frombits(x)), flush(math.Float32frombits(y))
	sum := float64(flush(acc)) + float64(a)*float64(b)
	// What rounds to less than leastNormal with 24 bits is flushed; from the middle on it rounds up to that.
	if math.Abs(sum) < leastNormal-0x1p-151 {
		return float32(math.Copysign(0, sum))
	}
	return float32(sum)
}

// flush is x, or a zero of its sign where it is below leastNormal.
func flush(x float32) float32 {
	if x > -leastNormal && x < leastNormal {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// pairTrials are what addsInOrder tries: the sum of the two halves of first, as addPair adds them to 0, plus x and y.
var pairTrials = []struct{ first, x, y uint32 }{
	{pair(0x1p24, 0), pair(1, -0x1p24), pair(1, 1)},            // the upper half first: 0
	{pair(0x1p24, 0), pair(-0x1p24, 1), pair(1, 1)},            // 1
	{pair(0x1p24, 0), pair(1, 1), pair(1, 1)},                  // two roundings to even
	{pair(0x1p24, 2), pair(1, 0), pair(1, 0)},                  // a rounding up to even
	{pair(0x1p24, 2), pair(3, -1), pair(1.5, 0x1p-10)},         // of more than half
	{pair(1.5, 0), pair(0x1.fep-1, 0x1.02p3), pair(3, -0x1p5)}, // exact products
	{pair(0x1.8p-126, 0), pair(-1, 1), pair(0x1p-126, 0x1p-125)},
	{pair(0x1p-126, 0), pair(-0x1p-75, 0), pair(0x1p-75, 0)}, // flushed when rounded
	{pair(0x1p-126, 0), pair(-0x1p-75, 0), pair(0x1p-76, 0)}, // rounded up to a normal number
	{pair(0, 0), pair(-0x1p-70, 0), pair(0x1p-70, 0)},
	{0x00400000, pair(1, 1), 0x00410001}, // operands that count as 0
	{pair(0x1p127, 0), pair(0x1p127, -0x1p127), pair(1, 1)},
	{pair(1, 0), pair(float32(math.Inf(1)), float32(math.Inf(-1))), pair(1, 1)},
	{pair(1, 0), pair(0, 1), pair(float32(math.Inf(1)), 2)},
}

// pair is two numbers that are bf16, packed.
func pair(upper, lower float32) uint32 {
	return math.Float32bits(upper)&0xffff0000 | math.Float32bits(lower)>>16
}

// addsInOrder says whether a kernel of one row adds as addPair does. It tries sums in which order, rounding and
// flushing show, so that nothing is computed by an instruction which does something else.
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
