package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set that kernels are written for.
type isa struct {
	name  string // suffix of its functions
	lanes int    // fp32 elements of a register
}

func (v isa) wide() bool { return v.lanes == 16 }

// reg is a fresh register.
func (v isa) reg() reg.VecVirtual {
	if v.wide() {
		return ZMM()
	}
	return YMM()
}

// half is a fresh register of half the size.
func (v isa) half() reg.VecVirtual {
	if v.wide() {
		return YMM()
	}
	return XMM()
}

func (v isa) zero() reg.VecVirtual {
	r := v.reg()
	if v.wide() {
		VPXORD(r, r, r)
	} else {
		VPXOR(r, r, r)
	}
	return r
}

// splat is a register of 32-bit constants.
func (v isa) splat(bits uint32) reg.VecVirtual {
	gp, x, r := GP32(), XMM(), v.reg()
	MOVL(U32(bits), gp)
	VMOVD(gp, x)
	VPBROADCASTD(x, r)
	return r
}

// broadcast spreads the float at m.
func (v isa) broadcast(m Mem) reg.VecVirtual {
	r := v.reg()
	VBROADCASTSS(m, r)
	return r
}

// gradient reads the elements at p, disp elements on, as fp32.
func (v isa) gradient(kind string, p reg.Register, disp int) reg.VecVirtual {
	r := v.reg()
	if kind == "F32" {
		VMOVUPS(at(p, 4*disp), r)
		return r
	}
	VPMOVZXWD(at(p, 2*disp), r)
	VPSLLD(Imm(16), r, r)
	return r
}

// at is the memory disp bytes after p.
func at(p reg.Register, disp int) Mem { return Mem{Base: p, Disp: disp} }

// begin starts a function and describes it.
func (v isa) begin(name, signature, doc string) {
	TEXT(name+v.name, 4, signature) // 4 is NOSPLIT
	Pragma("noescape")
	Doc(name + v.name + " " + doc)
}

// pointer loads the pointer parameter name.
func pointer(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// stream is a pointer that moves with the elements, size bytes each.
type stream struct {
	p    reg.GPVirtual
	size int
}

// each runs body over the n elements of the streams: unroll registers at a
// time, then one at a time. body works disp elements after the pointers.
func (v isa) each(unroll int, streams []stream, body func(disp int)) {
	n := Load(Param("n"), GP64())
	loop := func(label, next string, count int) {
		Label(label)
		CMPQ(n, U32(uint32(count*v.lanes)))
		JL(LabelRef(next))
		for i := range count {
			body(i * v.lanes)
		}
		for _, s := range streams {
			ADDQ(U32(uint32(count*v.lanes*s.size)), s.p)
		}
		SUBQ(U32(uint32(count*v.lanes)), n)
		JMP(LabelRef(label))
	}
	if unroll > 1 {
		loop("many", "one", unroll)
	}
	loop("one", "done", 1)
	Label("done")
}
