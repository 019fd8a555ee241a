package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// isa is an instruction set that kernels target.
type isa struct{ ISA }

// half returns a new register of half the size of the set's registers.
func (v isa) half() reg.VecVirtual {
	if v.Wide() {
		return YMM()
	}
	return XMM()
}

// broadcast returns a fresh register with the float at m in every lane.
func (v isa) broadcast(m Mem) reg.VecVirtual {
	r := v.Reg()
	VBROADCASTSS(m, r)
	return r
}

// gradient generates the load of a register of gradients, disp elements after p, as fp32. kind is the type in memory.
func (v isa) gradient(kind string, p reg.Register, disp int) reg.VecVirtual {
	r := v.Reg()
	if kind == "F32" {
		v.Load(At(p, 4*disp), r, nil)
	} else {
		LoadBF16(At(p, 2*disp), r, nil)
	}
	return r
}

// stream is an array through which a generated loop goes: a pointer that advances with the elements. size is the bytes
// of an element, or half if two elements share a byte.
type stream struct {
	p    reg.GPVirtual
	size int
}

// half stands for half a byte. As the size of a stream it says that two 4-bit elements share a byte; −1 has no other
// meaning there.
const half = -1

// bytes returns how many bytes elems elements of the stream take.
func (s stream) bytes(elems int) int {
	if s.size == half {
		return elems / 2
	}
	return elems * s.size
}

// each generates a loop over n elements of all streams, n being the generated function's argument. It takes unroll
// registers of elements at a time, then one register at a time. body generates the work for one register, disp elements
// after the pointers.
func (v isa) each(unroll int, streams []stream, body func(disp int)) {
	n := Load(Param("n"), GP64())
	loop := func(label, next string, count int) {
		Label(label)
		CMPQ(n, U32(uint32(count*v.Lanes)))
		JL(LabelRef(next))
		for i := range count {
			body(i * v.Lanes)
		}
		for _, s := range streams {
			ADDQ(U32(uint32(s.bytes(count*v.Lanes))), s.p)
		}
		SUBQ(U32(uint32(count*v.Lanes)), n)
		JMP(LabelRef(label))
	}
	if unroll > 1 {
		loop("many", "one", unroll)
	}
	loop("one", "done", 1)
	Label("done")
}
