package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// peakSums is how many sums of a kernel are independent: enough for two fused multiply-adds per cycle, each of which
// takes at most five cycles.
const peakSums = 12 // as in package gemm

// peak generates a loop of fused multiply-adds in registers, with which the processor's peak is measured.
func peak(v ISA, regs []reg.VecPhysical) {
	v.Begin("peak", "func(n int)", fmt.Sprintf("computes n times %d fused multiply-adds of registers.", peakSums))
	n := Arg("n")
	for _, r := range regs[:peakSums+2] {
		VXORPS(r.AsX(), r.AsX(), r.AsX())
	}
	Label("loop")
	for _, r := range regs[:peakSums] {
		VFMADD231PS(regs[peakSums], regs[peakSums+1], r)
	}
	DECQ(n)
	JNE(LabelRef("loop"))
	End()
}
