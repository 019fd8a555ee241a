package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// roundElems is the number of elements in one iteration of widen and round.
const roundElems = 32

// The constants of SplitMix64: see mix in host/optim/rounded.go.
const (
	gamma  = 0x9e3779b97f4a7c15
	first  = 0xbf58476d1ce4e5b9
	second = 0x94d049bb133111eb
)

// splat64 returns a fresh register with a 64-bit constant in every lane.
func (v isa) splat64(bits uint64) reg.VecVirtual {
	gp, x, r := GP64(), XMM(), v.Reg()
	MOVQ(U64(bits), gp)
	VMOVQ(gp, x)
	VPBROADCASTQ(x, r)
	return r
}

// and sets the operand to to a & b, bit by bit.
func (v isa) and(a, b, to Op) {
	if v.Wide() {
		VPANDD(a, b, to)
	} else {
		VPAND(a, b, to)
	}
}

// xorShifted returns x ^ x>>by of 64-bit lanes in a fresh register.
func (v isa) xorShifted(x reg.VecVirtual, by uint8) reg.VecVirtual {
	y := v.Reg()
	VPSRLQ(Imm(uint64(by)), x, y)
	if v.Wide() {
		VPXORQ(x, y, y)
	} else {
		VPXOR(x, y, y)
	}
	return y
}

// product64 holds a 64-bit multiplier in all lanes of a register. upper has its upper half, which only AVX2 needs.
type product64 struct{ whole, upper reg.VecVirtual }

func (v isa) product64(by uint64) product64 {
	if v.Wide() {
		return product64{whole: v.splat64(by)}
	}
	return product64{v.splat64(by), v.splat64(by >> 32)}
}

// times multiplies each 64-bit lane of x by the number by, in place. AVX2 has only products of 32-bit numbers, so there
// it adds three of them.
func (v isa) times(x reg.VecVirtual, by product64) {
	if v.Wide() {
		VPMULLQ(by.whole, x, x)
		return
	}
	high, cross := v.Reg(), v.Reg()
	VPSRLQ(Imm(32), x, high)
	VPMULUDQ(by.whole, high, high)
	VPMULUDQ(by.upper, x, cross)
	VPADDQ(cross, high, high)
	VPSLLQ(Imm(32), high, high)
	VPMULUDQ(by.whole, x, x)
	VPADDQ(high, x, x)
}

// widen generates the conversion of bf16 to fp32.
func widen(v isa) {
	v.Begin("widen", "func(from *uint16, to *float32, n int)", "sets to to n numbers; n is a multiple of 32.")
	from, to := Arg("from"), Arg("to")
	turn := isa{ISA{Name: v.Name, Lanes: roundElems}}
	turn.each(1, []stream{{from, 2}, {to, 4}}, func(disp int) {
		for i := 0; i < roundElems; i += v.Lanes {
			x := v.Reg()
			LoadBF16(At(from, 2*(disp+i)), x, nil)
			VMOVUPS(x, At(to, 4*(disp+i)))
		}
	})
	End()
}

// round generates the stochastic rounding of fp32 to bf16. One random number of SplitMix64 rounds four numbers. An
// iteration uses the eight generator states of 32 numbers, which fill one register with AVX-512 and two with AVX2.
func round(v isa) {
	v.Begin("round", "func(from *float32, to *uint16, n int, states *[8]uint64)",
		"sets to to n numbers, rounded by the draws of these states and of those that follow; n is a multiple of 32.")
	from, to, states := Arg("from"), Arg("to"), Arg("states")
	perTurn := 8 / (v.Lanes / 2) // registers of generator states
	state := make([]reg.VecVirtual, perTurn)
	for i := range state {
		state[i] = v.Reg()
		VMOVUPS(At(states, v.Bytes()*i), state[i])
	}
	const growth uint64 = 8 * (gamma & (1<<61 - 1)) // modulo 2^64
	grow, by1, by2 := v.splat64(growth), v.product64(first), v.product64(second)
	exponent, quiet := v.Splat(0x7f800000), v.Splat(0x400000)
	turn := isa{ISA{Name: v.Name, Lanes: roundElems}}
	turn.each(1, []stream{{from, 4}, {to, 2}}, func(disp int) {
		for i := range state {
			z := v.xorShifted(state[i], 30)
			v.times(z, by1)
			z = v.xorShifted(z, 27)
			v.times(z, by2)
			z = v.xorShifted(z, 31)
			VPADDQ(grow, state[i], state[i])
			v.roundBy(from, to, disp+2*v.Lanes*i, z, exponent, quiet)
		}
	})
	End()
}

// roundBy generates the stochastic rounding of two registers of numbers. Each number uses 16 random
// bits from draws, in order. exponent and quiet hold the constants with which infinities and NaNs
// are treated.
func (v isa) roundBy(from, to reg.GPVirtual, disp int, draws, exponent, quiet reg.VecVirtual) {
	var rounded [2]reg.VecVirtual
	for i := range rounded {
		draw, x, nan := v.Reg(), v.Reg(), v.Reg()
		var words reg.Register
		switch {
		case i == 0 && v.Wide():
			words = draws.AsY()
		case i == 0:
			words = draws.AsX()
		case v.Wide():
			words = v.half()
			VEXTRACTI64X4(Imm(1), draws, words)
		default:
			words = v.half()
			VEXTRACTI128(Imm(1), draws, words)
		}
		VPMOVZXWD(words, draw)
		VMOVUPS(At(from, 4*(disp+v.Lanes*i)), x)
		v.and(exponent, x, nan)
		if v.Wide() {
			finite, unordered := K(), K()
			VPCMPD(Imm(4), exponent, nan, finite) // not equal
			VCMPPS(Imm(3), x, x, unordered)
			VPORD(quiet, x, unordered, x)
			VPADDD(draw, x, finite, x)
			VPSRLD(Imm(16), x, x)
			VPMOVDW(x, At(to, 2*(disp+v.Lanes*i)))
			continue
		}
		special := v.Reg()
		VPCMPEQD(exponent, nan, special)
		VPANDN(draw, special, draw)
		VCMPPS(Imm(3), x, x, nan)
		VPAND(quiet, nan, nan)
		VPOR(nan, x, x)
		VPADDD(draw, x, x)
		VPSRLD(Imm(16), x, x)
		rounded[i] = x
	}
	if !v.Wide() {
		y := v.Reg()
		VPACKUSDW(rounded[1], rounded[0], y) // within 128 bits: 0–3, 8–11, 4–7, 12–15
		VPERMQ(Imm(0xd8), y, y)
		VMOVUPS(y, At(to, 2*disp))
	}
}
