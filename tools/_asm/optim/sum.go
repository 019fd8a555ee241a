package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// sumLanes is the number of partial sums, which are added up independently of each other.
const sumLanes = 32

// ahead is how many bytes ahead of its reads the sum prefetches. That makes the sum 1.1 (fp32) to 1.4 (bf16) times as
// fast. The optimizers' updates read four or five arrays at once and gain nothing from prefetching.
const ahead = 2048

// sum generates the sum of squares in float64, with element i in partial sum i % sumLanes. The square is exact in
// float64, so a fused multiply-add gives the same result.
func sum(v isa, kind string) {
	v.Begin("sum"+kind, "func(x *byte, n int, lanes *[32]float64)",
		"sets lanes to the sums of squares of n elements; n is a multiple of 32.")
	x, size := Arg("x"), 4
	if kind == "BF16" {
		size = 2
	}
	perSum := v.Lanes / 2 // float64 elements of a register
	acc := make([]reg.VecVirtual, sumLanes/perSum)
	for i := range acc {
		acc[i] = v.Zero()
	}
	each := isa{ISA{Name: v.Name, Lanes: sumLanes}} // an iteration takes sumLanes elements
	each.each(1, []stream{{x, size}}, func(disp int) {
		for line := 0; line < sumLanes*size; line += 64 {
			PREFETCHT0(At(x, size*disp+line+ahead))
		}
		for i := range acc {
			h, d := v.half(), v.Reg()
			if kind == "F32" {
				VCVTPS2PD(At(x, size*(disp+i*perSum)), d)
			} else {
				LoadBF16(At(x, size*(disp+i*perSum)), h, nil)
				VCVTPS2PD(h, d)
			}
			VFMADD231PD(d, d, acc[i])
		}
	})
	lanes := Arg("lanes")
	for i, a := range acc {
		VMOVUPD(a, At(lanes, 8*perSum*i))
	}
	End()
}
