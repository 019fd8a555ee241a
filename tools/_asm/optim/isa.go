package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// isa is an instruction set that kernels target.
type isa struct{ ISA }

// half returns a fresh register of half the set's register size.
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

// gradient reads the elements at p, disp elements on, as fp32.
func (v isa) gradient(kind string, p reg.Register, disp int) reg.VecVirtual {
	r := v.Reg()
	if kind == "F32" {
		v.Load(At(p, 4*disp), r, nil)
	} else {
		LoadBF16(At(p, 2*disp), r, nil)
	}
	return r
}

// stream is a pointer that advances with the elements. size is the bytes of an element, or half for two elements a
// byte.
type stream struct {
	p    reg.GPVirtual
	size int
}

// half is the stream size of 4-bit elements.
const half = -1

// bytes returns the distance that the pointer advances in elems elements.
func (s stream) bytes(elems int) int {
	if s.size == half {
		return elems / 2
	}
	return elems * s.size
}

// each runs body over the n elements of the streams: unroll registers at a time, then one at a time. The body works
// disp elements after the pointers.
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
