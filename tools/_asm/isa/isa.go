// Package isa is what the generators of assembly for x86 share: a description of the two
// instruction sets that kernels are written for, and the few instructions that all
// kernels need in both.
//
// A mask is nil for all elements, an opmask register with AVX-512, and with AVX2 a
// vector register whose lanes have their sign set.
package isa

import (
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"mt/tools/asm/twins"
)

// ISA is an instruction set that kernels are written for.
type ISA struct {
	Name  string // suffix of its functions
	Lanes int    // fp32 elements of a register
}

// AVX512 and AVX2 are the sets there are.
var (
	AVX512 = ISA{Name: "AVX512", Lanes: 16}
	AVX2   = ISA{Name: "AVX2", Lanes: 8}
)

// Wide says that the set is AVX-512.
func (v ISA) Wide() bool { return v.Lanes == 16 }

// Bytes is the size of a register.
func (v ISA) Bytes() int { return 4 * v.Lanes }

// Reg is a fresh register.
func (v ISA) Reg() reg.VecVirtual {
	if v.Wide() {
		return ZMM()
	}
	return YMM()
}

// Zero is a fresh register of zeros.
func (v ISA) Zero() reg.VecVirtual {
	r := v.Reg()
	if v.Wide() {
		VPXORD(r, r, r)
	} else {
		VPXOR(r, r, r)
	}
	return r
}

// Splat is a fresh register of a 32-bit constant.
func (v ISA) Splat(bits uint32) reg.VecVirtual {
	gp, x, r := GP32(), XMM(), v.Reg()
	MOVL(U32(bits), gp)
	VMOVD(gp, x)
	VPBROADCASTD(x, r)
	return r
}

// Load reads a register of fp32 at m into r; elements outside mask are not read and
// become 0.
func (v ISA) Load(m Mem, r, mask reg.Register) {
	switch {
	case mask == nil:
		VMOVUPS(m, r)
	case v.Wide():
		VMOVUPS_Z(m, mask, r)
	default:
		VMASKMOVPS(m, mask, r)
	}
}

// Store writes the elements of r in mask to m as they are.
func (v ISA) Store(r reg.Register, m Mem, mask reg.Register) {
	switch {
	case mask == nil:
		VMOVUPS(r, m)
	case v.Wide():
		VMOVUPS(r, mask, m)
	default:
		VMASKMOVPS(r, mask, m)
	}
}

// LoadBF16 reads a register of bf16 at m into r as fp32. A mask, which AVX-512 alone
// has for 16 bits, does as in Load.
func LoadBF16(m Mem, r, mask reg.Register) {
	if mask != nil {
		VPMOVZXWD_Z(m, mask, r)
	} else {
		VPMOVZXWD(m, r)
	}
	VPSLLD(Imm(16), r, r)
}

// StoreLow writes the lower halves of the 32-bit elements of r in mask to m.
func StoreLow(r reg.Register, m Mem, mask reg.Register) {
	if mask == nil {
		VPMOVDW(r, m)
	} else {
		VPMOVDW(r, mask, m)
	}
}

// Round writes to the lower halves of the elements of y the fp32 elements of x as
// bf16, rounded to nearest even, NaNs as quiet NaNs, with AVX-512. one, half and quiet
// are registers of 1, 0x7fff and 0x400000; nan is an opmask that it overwrites.
func Round(x, y, nan reg.Register, one, half, quiet Op) {
	VPSRLD(Imm(16), x, y)
	VPANDD(one, y, y)
	VPADDD(half, y, y)
	VPADDD(x, y, y)
	VCMPPS(Imm(3), x, x, nan) // unordered
	VPORD(quiet, x, nan, y)
	VPSRLD(Imm(16), y, y)
}

// TailMask sets k, with AVX-512, to the mask of the first n < 16 elements.
func TailMask(n, k reg.Register) {
	m := GP32()
	MOVL(U32(0xffff), m)
	BZHIL(n.(reg.GP).As32(), m, m)
	KMOVW(m, k)
}

// Transpose turns 16 rows of 16 elements, each in a register of in, into columns,
// with AVX-512. It overwrites the 16 registers of a.
func Transpose[R reg.Register](in, a []R) {
	for i := 0; i < 16; i += 2 { // pairs of rows
		VUNPCKLPS(in[i+1], in[i], a[i])
		VUNPCKHPS(in[i+1], in[i], a[i+1])
	}
	for i := 0; i < 16; i += 4 { // in[i+c]: column c of every group of four, of rows i … i+3
		VUNPCKLPD(a[i+2], a[i], in[i])
		VUNPCKHPD(a[i+2], a[i], in[i+1])
		VUNPCKLPD(a[i+3], a[i+1], in[i+2])
		VUNPCKHPD(a[i+3], a[i+1], in[i+3])
	}
	for c := range 4 { // columns c, c+8 and c+4, c+12 of rows 0–7 and of rows 8–15
		VSHUFF32X4(Imm(0x88), in[4+c], in[c], a[c])
		VSHUFF32X4(Imm(0xdd), in[4+c], in[c], a[4+c])
		VSHUFF32X4(Imm(0x88), in[12+c], in[8+c], a[8+c])
		VSHUFF32X4(Imm(0xdd), in[12+c], in[8+c], a[12+c])
	}
	for c := range 8 {
		VSHUFF32X4(Imm(0x88), a[8+c], a[c], in[c])
		VSHUFF32X4(Imm(0xdd), a[8+c], a[c], in[8+c])
	}
}

// ZMMs and YMMs are the registers themselves, for kernels that give each its place.
var (
	ZMMs = []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
		reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
		reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
	}
	YMMs = []reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
	}
)

// Begin starts a function, called name and the suffix of the set.
func (v ISA) Begin(name, signature, doc string) { Begin(name+v.Name, signature, doc) }

// Begin starts a function and describes it in lines of text, of which the first goes
// on from its name, unless a twin has.
func Begin(name, signature string, doc ...string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	if twins.First(strings.Join(doc, " ")) {
		doc[0] = name + " " + doc[0]
		Doc(doc...)
	}
}

// End ends a function that used the registers of vectors.
func End() {
	VZEROUPPER()
	RET()
}

// At is the memory disp bytes after p.
func At(p reg.Register, disp int) Mem { return Mem{Base: p, Disp: disp} }

// Arg loads the parameter called name, a pointer or 64-bit integer.
func Arg(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// Args loads the parameters called names.
func Args(names ...string) []reg.GPVirtual {
	p := make([]reg.GPVirtual, len(names))
	for i, name := range names {
		p[i] = Arg(name)
	}
	return p
}
