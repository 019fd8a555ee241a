package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// isa is an instruction set that kernels target.
type isa struct {
	ISA
	tileRows int // maximum height of a matrix tile
}

var (
	avx512 = isa{AVX512, 14}
	avx2   = isa{AVX2, 6}
)

// load reads one register of fp32 elements into a fresh register.
func (v isa) load(m Mem, mask reg.Register) reg.VecVirtual {
	r := v.Reg()
	v.Load(m, r, mask)
	return r
}

// clear sets the elements of r outside mask to 0.
func (v isa) clear(r reg.VecVirtual, mask reg.Register) {
	switch {
	case mask == nil:
	case v.Wide():
		VMOVAPS_Z(r, mask, r)
	default:
		VANDPS(mask, r, r)
	}
}

// fill replaces all elements of r outside mask by those of the register `other`. A nil mask replaces nothing.
func (v isa) fill(r reg.VecVirtual, other reg.Register, mask reg.Register) {
	switch {
	case mask == nil:
	case v.Wide():
		VBLENDMPS(r, other, mask, r)
	default:
		VBLENDVPS(mask, r, other, r)
	}
}

// broadcast returns a fresh register with the float parameter name in every lane. It reads memory with an AVX
// instruction: an SSE instruction behind one that changes a wide register took 100 ns on Zen 3.
func (v isa) broadcast(name string) reg.VecVirtual {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	r := v.Reg()
	VBROADCASTSS(p.Addr, r)
	return r
}

var constants = map[uint32]Mem{}

// bits returns a constant as an operand of instructions. With AVX-512 it is in one of the 32 registers, and with AVX2
// in memory. Call bits before the loop that uses the constant.
func (v isa) bits(b uint32) Op {
	m := inMemory(b)
	if !v.Wide() {
		return m
	}
	r := ZMM()
	VMOVUPS(m, r)
	return r
}

// inMemory returns a 32-bit constant as an operand in memory. It adds the constant to the generated file if it is new.
func inMemory(b uint32) Mem {
	m, ok := constants[b]
	if !ok {
		m = GLOBL(fmt.Sprintf("c%08x", b), RODATAandNOPTR)
		for i := range 16 {
			DATA(4*i, U32(b))
		}
		constants[b] = m
	}
	return m
}

// memory returns a constant as an operand in memory, for functions with more constants than registers.
func (v isa) memory(f float32) Op { return inMemory(math.Float32bits(f)) }

func (v isa) constant(f float32) Op { return v.bits(math.Float32bits(f)) }

// RODATAandNOPTR are the symbol attributes of the constants.
const RODATAandNOPTR = 8 | 16

var maskTable Mem

// tailMask returns a mask for the first n elements of a register, where n is less than a register has.
func (v isa) tailMask(n reg.GPVirtual) reg.Register {
	if v.Wide() {
		k := K()
		TailMask(n, k)
		return k
	}
	if maskTable.Symbol.Name == "" {
		maskTable = GLOBL("masks", RODATAandNOPTR)
		for i := range 16 {
			if i < 8 {
				DATA(4*i, U32(0xffffffff))
			} else {
				DATA(4*i, U32(0))
			}
		}
	}
	base, y := GP64(), YMM()
	LEAQ(maskTable, base)
	SHLQ(Imm(2), n)
	SUBQ(n, base)
	VMOVUPS(Mem{Base: base, Disp: 32}, y)
	return y
}

// each generates a loop over the n elements of the arrays at ptrs: unroll registers at a time, then one at a time, then
// once with a mask for the rest. body generates the work for register i of an iteration, disp bytes after the pointers.
// each changes n and the pointers.
func (v isa) each(n reg.GPVirtual, unroll int, ptrs []reg.GPVirtual, body func(i, disp int, mask reg.Register)) {
	step := func(label, next string, count int) {
		Label(label)
		CMPQ(n, U32(uint32(count*v.Lanes)))
		JL(LabelRef(next))
		for i := range count {
			body(i, i*v.Bytes(), nil)
		}
		for _, p := range ptrs {
			ADDQ(U32(uint32(count*v.Bytes())), p)
		}
		SUBQ(U32(uint32(count*v.Lanes)), n)
		JMP(LabelRef(label))
	}
	if unroll > 1 {
		step("many", "one", unroll)
	}
	step("one", "tail", 1)
	Label("tail")
	TESTQ(n, n)
	JE(LabelRef("done"))
	body(0, 0, v.tailMask(n))
	Label("done")
}

// fold combines all elements of r by op (VADDPS or VMAXPS), halving the vector each time. The result is the first
// element of the returned register.
func (v isa) fold(r reg.VecVirtual, op func(...Op)) reg.VecVirtual {
	y := r.AsY()
	if v.Wide() {
		hi := YMM()
		VEXTRACTF64X4(Imm(1), r, hi)
		op(hi, y, y)
	}
	x, t := r.AsX(), XMM()
	if v.Wide() { // VEXTRACTF32X4 reaches all 32 registers
		VEXTRACTF32X4(Imm(1), y, t)
	} else {
		VEXTRACTF128(Imm(1), y, t)
	}
	op(t, x, x)
	VMOVHLPS(x, x, t)
	op(t, x, x)
	VMOVSHDUP(x, t)
	op(t, x, x)
	return r
}

// result ends the generated function, which returns the first element of r.
func (v isa) result(r reg.VecVirtual) {
	VZEROUPPER()
	Store(r.AsX(), ReturnIndex(0))
	RET()
}
