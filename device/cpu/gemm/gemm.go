package gemm

import (
	"cmp"
	"fmt"
	"unsafe"

	"mt/base/parallel"
)

// Args describes one product
//
//	D (M,N) = op(A) (M,K) · op(B) (K,N) + C (M,N) + Bias (N)
//
// of row-major matrices. An operand is bf16 (the upper two bytes of an fp32) if its flag is set, else fp32.
// Products and sums are fp32; a bf16 D is rounded once, to nearest even, after C and Bias have been added.
type Args struct {
	M, N, K int
	// TransA: A is stored (K,M). TransB: B is stored (N,K).
	TransA, TransB bool
	// C is nil or has D's type, and may be D. Otherwise D overlaps no input.
	A, B, C, D unsafe.Pointer
	// ABF16 and BBF16 are the types of A and B; DBF16 is the type of C and D.
	ABF16, BBF16, DBF16 bool
	// Bias is nil or N fp32, added to every row.
	Bias unsafe.Pointer
	// LDA, LDB and LDD are the elements between the beginnings of two rows in memory; 0: rows without gaps. C is like D.
	LDA, LDB, LDD int
}

// Run computes the product a on the threads of p, with ws as scratch memory. It does nothing if M
// or N is 0. If K is 0, the product is 0. It panics if an extent is negative.
func Run(p *parallel.Pool, ws *Workspace, a Args) {
	if a.M < 0 || a.N < 0 || a.K < 0 {
		panic(fmt.Sprintf("gemm: negative extent: M %d, N %d, K %d", a.M, a.N, a.K))
	}
	if a.M == 0 || a.N == 0 {
		return
	}
	ws.begin(p, a)
	defer ws.end()
	switch {
	case a.K == 0:
		ws.addOnly()
	case a.TransB && a.M <= maxDotRows:
		ws.runDots(p)
	default:
		ws.runBlocks(p)
	}
}

// operand is a matrix in memory. Element (r, c) lies ld·r + c elements after the address p.
type operand struct {
	p    unsafe.Pointer
	ld   int
	bf16 bool
}

// at returns the part of o that begins at row r, column c.
func (o operand) at(r, c int) operand {
	o.p = unsafe.Add(o.p, (r*o.ld+c)*o.size())
	return o
}

// size returns the number of bytes of an element of o.
func (o operand) size() int {
	if o.bf16 {
		return 2
	}
	return 4
}

// f32 returns the first n elements of o, which must be fp32, as a slice.
func (o operand) f32(n int) []float32 { return unsafe.Slice((*float32)(o.p), n) }

// u16 returns the first n elements of o, which must be bf16, as bit patterns.
func (o operand) u16(n int) []uint16 { return unsafe.Slice((*uint16)(o.p), n) }

// operands returns A, B and D as they are stored, with row lengths and dtypes. C has the same
// layout as D.
func (a *Args) operands() (left, right, result operand) {
	rowA, rowB := a.K, a.N
	if a.TransA {
		rowA = a.M
	}
	if a.TransB {
		rowB = a.K
	}
	return operand{a.A, cmp.Or(a.LDA, rowA), a.ABF16}, operand{a.B, cmp.Or(a.LDB, rowB), a.BBF16}, operand{a.D, cmp.Or(a.LDD, a.N), a.DBF16}
}

// bias returns the bias of the n columns that begin with column from; nil: the product has no bias.
func (a *Args) bias(from, n int) []float32 {
	if a.Bias == nil {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Add(a.Bias, 4*from)), n)
}
