package optim

import (
	"fmt"
	"os"
	"unsafe"
)

// gradKind is the kind of gradient that a kernel reads.
type gradKind uint8

const (
	gradF32 gradKind = iota
	gradBF16
	gradZero // no gradients in memory: all are zero
	gradKinds
)

// rule selects the formula by which a kernel updates an element.
type rule uint8

const (
	adamRule rule = iota
	lionRule
	sgdRule
	momentumRule // SGD with momentum
	applyRule    // Muon's matrices; no kernel for gradZero
	averageRule  // moving averages, stored as the moment; kernels for gradZero only
	rules
)

// coefs has the factors of an update, in the order in which the kernels of the rule read them.
type coefs = [8]float32

// Types of kernels. A plainKernel updates n elements of a tensor of fp32 weights w. A splitKernel updates n elements of
// split weights, whose halves are hi and lo. Neither accesses moments (m and v) that the rule lacks. A prepareKernel
// updates n elements of a matrix's momentum m and writes the matrix to orthogonalize to memory at to. n is a multiple
// of kernels.lanes.
type (
	plainKernel   func(w, m, v *float32, grad *byte, n int, c *coefs)
	splitKernel   func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *coefs)
	prepareKernel func(m *float32, grad, to *byte, n int, c *coefs)
	sumKernel     func(x *byte, n int, lanes *[sumLanes]float64) // n is a multiple of sumLanes
)

// codeKernels convert n numbers to codes and back. decode and encode use one byte for each code. decode16 and encode16
// use four bits, with the first code in the lower half of a byte. n is a multiple of 128.
type codeKernels struct {
	decode, decode16 decoder
	encode, encode16 encoder
	greatest         func(x *float32, n int, most *float32) // largest magnitude; a NaN counts as the largest
}

type (
	decoder func(b *codebook, codes *byte, out *float32, n int, scale *float32)
	encoder func(b *codebook, x *float32, codes *byte, n int, scale *float32)
)

// roundKernels convert n numbers between bf16 and fp32. round rounds stochastically: it takes
// random bits from n/4 states of the generator SplitMix64, each for four numbers. states has the
// first eight states; each later state is its predecessor plus SplitMix64's constant gamma. n is a
// multiple of roundElems.
type roundKernels struct {
	widen func(from *uint16, to *float32, n int)
	round func(from *float32, to *uint16, n int, states *[roundElems / 4]uint64)
}

// kernels has the kernels for one instruction set.
type kernels struct {
	name  string
	lanes int // elements that a kernel processes at a time; generic updates the rest
	plain [rules][gradKinds]plainKernel
	split [rules][gradKinds]splitKernel
	// prepare is indexed by the types of the gradient and of the matrix that a kernel writes.
	prepare [gradZero][gradZero]prepareKernel
	sum     [gradKinds]sumKernel // no kernel for gradZero
	codes   codeKernels
	rounds  roundKernels
}

// active has the kernels in use.
var active = choose(os.Getenv("MT_CPU"), available())

// Level names the instruction set in use: "avx512vbmi", "avx512", "avx2", "neon" or "generic". The environment variable
// MT_CPU, read at start, limits the choice to the named set and slower sets. Any other value sets no limit.
func Level() string { return active.name }

// Levels names the instruction sets that this machine can run, fastest first.
func Levels() []string {
	var names []string
	for _, k := range available() {
		names = append(names, k.name)
	}
	return names
}

// Use selects one of Levels as the instruction set and returns the one used before. Tests and benchmarks use it to
// compare instruction sets. Nothing else may use this package at the same time.
func Use(level string) (before string) {
	for _, k := range available() {
		if k.name == level {
			before, active = active.name, k
			return before
		}
	}
	panic(fmt.Sprintf("optim: instruction set %q: there are %v", level, Levels()))
}

// choose returns the fastest kernels that limit, the value of MT_CPU, allows. available is sorted by speed, fastest
// first, and ends with generic. A limit that names no instruction set is ignored.
func choose(limit string, available []*kernels) *kernels {
	rank := map[string]int{"generic": 0, "avx2": 1, "neon": 1, "avx512": 2, "avx512vbmi": 3}
	most, limited := rank[limit]
	for _, k := range available {
		if !limited || rank[k.name] <= most {
			return k
		}
	}
	return &generic
}

// move updates n elements of the weights x by a rule, with the factors c. m and v are the elements' moments; nil: the
// rule has none. grad points to the first gradient.
func (k *kernels) move(by rule, x weightAt, m, v *float32, kind gradKind, grad *byte, n int, c *coefs) {
	whole := n / k.lanes * k.lanes
	if whole > 0 {
		k.moveWhole(by, x, m, v, kind, grad, whole, c)
	}
	if n > whole {
		generic.moveWhole(by, x.skip(whole), skip(m, whole), skip(v, whole), kind, skipGrad(kind, grad, whole), n-whole, c)
	}
}

// moveWhole is move for an n that is a multiple of k.lanes, the number of elements that a kernel processes at a time.
func (k *kernels) moveWhole(by rule, x weightAt, m, v *float32, kind gradKind, grad *byte, n int, c *coefs) {
	if x.hi != nil {
		k.split[by][kind](x.hi, x.lo, m, v, grad, n, c)
	} else {
		k.plain[by][kind](x.w, m, v, grad, n, c)
	}
}

// prepared updates n elements of a matrix's momentum m by the gradient grad. It writes these elements of the matrix to
// orthogonalize to out, in type to (fp32 or bf16).
func (k *kernels) prepared(m *float32, kind gradKind, grad *byte, to gradKind, out *byte, n int, c *coefs) {
	whole := n / k.lanes * k.lanes
	if whole > 0 {
		k.prepare[kind][to](m, grad, out, whole, c)
	}
	if n > whole {
		generic.prepare[kind][to](skip(m, whole), skipGrad(kind, grad, whole), skipGrad(to, out, whole), n-whole, c)
	}
}

// sumSquares returns the sum of squares of a block of n gradients at x.
func (k *kernels) sumSquares(kind gradKind, x *byte, n int) float64 {
	var lanes [sumLanes]float64
	whole := n / sumLanes * sumLanes
	if whole > 0 {
		k.sum[kind](x, whole, &lanes)
	}
	if n > whole {
		generic.sum[kind](skipGrad(kind, x, whole), n-whole, &lanes)
	}
	return fold(&lanes)
}

// skip returns a pointer n elements after p; nil if p is nil.
func skip[E any](p *E, n int) *E {
	if p == nil {
		return nil
	}
	return (*E)(unsafe.Add(unsafe.Pointer(p), n*int(unsafe.Sizeof(*p))))
}

// skipGrad returns a pointer n gradients after p. It returns nil for gradients that are all zero, and so not in memory.
func skipGrad(kind gradKind, p *byte, n int) *byte {
	switch kind {
	case gradF32:
		return skip(p, 4*n)
	case gradBF16:
		return skip(p, 2*n)
	}
	return nil
}
