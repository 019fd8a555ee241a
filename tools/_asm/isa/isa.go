// Package isa is shared by the x86 assembly generators. It describes the two instruction sets that kernels target and
// has the few instructions that all kernels need in both.
//
// A nil mask selects all elements. An AVX-512 mask is an opmask register. An AVX2 mask is a vector register whose sign
// bits select the lanes.
package isa

import (
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"mt/tools/asm/twins"
)

// ISA is an instruction set that kernels target.
type ISA struct {
	Name  string // suffix of the names of its functions
	Lanes int    // fp32 elements of a register
}

// AVX512 and AVX2 are the supported instruction sets.
var (
	AVX512 = ISA{Name: "AVX512", Lanes: 16}
	AVX2   = ISA{Name: "AVX2", Lanes: 8}
)

// Wide reports whether the set is AVX-512.
func (v ISA) Wide() bool { return v.Lanes == 16 }

// Bytes is the size of a vector register.
func (v ISA) Bytes() int { return 4 * v.Lanes }

// Reg returns a fresh vector register.
func (v ISA) Reg() reg.VecVirtual {
	if v.Wide() {
		return ZMM()
	}
	return YMM()
}

// Zero returns a fresh register of zeros.
func (v ISA) Zero() reg.VecVirtual {
	r := v.Reg()
	if v.Wide() {
		VPXORD(r, r, r)
	} else {
		VPXOR(r, r, r)
	}
	return r
}

// Splat returns a fresh register with a 32-bit constant in every lane.
func (v ISA) Splat(bits uint32) reg.VecVirtual {
	gp, x, r := GP32(), XMM(), v.Reg()
	MOVL(U32(bits), gp)
	VMOVD(gp, x)
	VPBROADCASTD(x, r)
	return r
}

// Load reads fp32 elements at m into r. Elements outside mask are not read and become 0.
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

// Store writes the elements of r in mask to m. Memory outside mask does not change.
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

// LoadBF16 reads bf16 elements at m into r as fp32. Elements outside mask are not read and become 0; a nil mask reads
// all. The mask must be an AVX-512 mask, because AVX2 has no masks for 16-bit elements.
func LoadBF16(m Mem, r, mask reg.Register) {
	if mask != nil {
		VPMOVZXWD_Z(m, mask, r)
	} else {
		VPMOVZXWD(m, r)
	}
	VPSLLD(Imm(16), r, r)
}

// StoreLow writes the lower halves of the 32-bit elements of r to m. Memory of elements outside mask does not change; a
// nil mask writes all.
func StoreLow(r reg.Register, m Mem, mask reg.Register) {
	if mask == nil {
		VPMOVDW(r, m)
	} else {
		VPMOVDW(r, mask, m)
	}
}

// Round rounds the fp32 elements of x to bf16, ties to even, NaNs to quiet NaNs, and writes them to the lower halves
// of y's elements. It needs AVX-512. Three registers hold constants: `one` holds 1, half 0x7fff and quiet 0x400000.
// Round overwrites the opmask nan.
func Round(x, y, nan reg.Register, one, half, quiet Op) {
	VPSRLD(Imm(16), x, y)
	VPANDD(one, y, y)
	VPADDD(half, y, y)
	VPADDD(x, y, y)
	VCMPPS(Imm(3), x, x, nan) // unordered
	VPORD(quiet, x, nan, y)
	VPSRLD(Imm(16), y, y)
}

// TailMask sets the opmask k so that it selects the first n elements of a register; n must be below 16. It needs
// AVX-512.
func TailMask(n, k reg.Register) {
	m := GP32()
	MOVL(U32(0xffff), m)
	BZHIL(n.(reg.GP).As32(), m, m)
	KMOVW(m, k)
}

// Transpose transposes 16 rows of 16 elements; each of the 16 registers in the slice in holds a row. It needs AVX-512
// and overwrites the 16 registers of a.
func Transpose[R reg.Register](in, a []R) {
	for i := 0; i < 16; i += 2 { // pairs of rows
		VUNPCKLPS(in[i+1], in[i], a[i])
		VUNPCKHPS(in[i+1], in[i], a[i+1])
	}
	for i := 0; i < 16; i += 4 { // in[i+c]: column c of each group of four, rows i … i+3
		VUNPCKLPD(a[i+2], a[i], in[i])
		VUNPCKHPD(a[i+2], a[i], in[i+1])
		VUNPCKLPD(a[i+3], a[i+1], in[i+2])
		VUNPCKHPD(a[i+3], a[i+1], in[i+3])
	}
	for c := range 4 { // columns c, c+8 and c+4, c+12 of rows 0–7 and rows 8–15
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

// Transpose8 writes the transpose of 8 rows of 8 elements to the 8 registers of a; each of the 8 registers in the slice
// in holds a row. It needs AVX2 and overwrites in.
func Transpose8[R reg.Register](in, a []R) {
	for i := 0; i < 8; i += 2 { // pairs of rows
		VUNPCKLPS(in[i+1], in[i], a[i])
		VUNPCKHPS(in[i+1], in[i], a[i+1])
	}
	for i := 0; i < 8; i += 4 { // in[i+c]: columns c and c+4 of rows i … i+3
		VUNPCKLPD(a[i+2], a[i], in[i])
		VUNPCKHPD(a[i+2], a[i], in[i+1])
		VUNPCKLPD(a[i+3], a[i+1], in[i+2])
		VUNPCKHPD(a[i+3], a[i+1], in[i+3])
	}
	for c := range 8 {
		VPERM2F128(Imm(uint64(0x20+0x11*(c/4))), in[4+c%4], in[c%4], a[c])
	}
}

// ZMMs and YMMs list the physical registers, for kernels that choose their registers themselves instead of letting avo
// do it.
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

// Begin starts a function whose name is name plus the name of the instruction set.
func (v ISA) Begin(name, signature, doc string) { Begin(name+v.Name, signature, doc) }

// Begin starts a function called name. In the Go stub its comment is the name followed by the lines of doc. If an
// earlier function has the same doc, there is no comment.
func Begin(name, signature string, doc ...string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	if twins.First(strings.Join(doc, " ")) {
		doc[0] = name + " " + doc[0]
		Doc(doc...)
	}
}

// End ends a function that has used vector registers: it clears their upper halves, so that later SSE code is not
// slowed, and returns.
func End() {
	VZEROUPPER()
	RET()
}

// At returns the address disp bytes after p.
func At(p reg.Register, disp int) Mem { return Mem{Base: p, Disp: disp} }

// Arg loads the generated function's parameter called name, a pointer or 64-bit integer, into a new register.
func Arg(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// Args loads the generated function's parameters called names into new registers.
func Args(names ...string) []reg.GPVirtual {
	p := make([]reg.GPVirtual, len(names))
	for i, name := range names {
		p[i] = Arg(name)
	}
	return p
}
