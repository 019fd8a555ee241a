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
	gradZero // none: the gradient of every element is zero
	gradKinds
)

// rule is how a kernel moves an element.
type rule uint8

const (
	adamRule rule = iota
	lionRule
	sgdRule
	momentumRule // of SGD
	applyRule    // of Muon's matrices; there is none for gradZero
	averageRule  // of averages, which are its moment; there is none but for gradZero
	rules
)

// coefs are the factors of an update, in the order in which the kernels of its rule read them.
type coefs = [8]float32

// plainKernel updates n elements of an fp32 plane, splitKernel n elements of a
// weight in two planes; moments that the rule does not have are not looked at. prepareKernel moves the momentum of a
// matrix and writes to. n is a multiple of the level's lanes.
type (
	plainKernel   func(w, m, v *float32, grad *byte, n int, c *coefs)
	splitKernel   func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *coefs)
	prepareKernel func(m *float32, grad, to *byte, n int, c *coefs)
	sumKernel     func(x *byte, n int, lanes *[sumLanes]float64) // n is a multiple of sumLanes
)

// codeKernels turn n numbers into codes of a byte, or of half a byte, the lower one first, and back. n is a multiple of 128.
type codeKernels struct {
	decode, decode16 decoder
	encode, encode16 encoder
	greatest         func(x *float32, n int, most *float32) // of magnitudes; a NaN is the greatest
}

type (
	decoder func(b *codebook, codes *byte, out *float32, n int, scale *float32)
	encoder func(b *codebook, x *float32, codes *byte, n int, scale *float32)
)

// roundKernels turn n bf16 numbers into fp32 and n fp32 numbers, by the draws of n/4 states of SplitMix64, into bf16:
// eight states are given, those that follow grow by gamma. n is a multiple of roundElems.
type roundKernels struct {
	widen func(from *uint16, to *float32, n int)
	round func(from *float32, to *uint16, n int, states *[roundElems / 4]uint64)
}

// kernels is the implementation for one instruction set.
type kernels struct {
	name  string
	lanes int // how many elements a kernel takes at a time; generic updates those left over
	plain [rules][gradKinds]plainKernel
	split [rules][gradKinds]splitKernel
	// prepare is by the kinds of what is read and of what is written.
	prepare [gradZero][gradZero]prepareKernel
	sum     [gradKinds]sumKernel // there is none for gradZero
	codes   codeKernels
	rounds  roundKernels
}

// active is the implementation that the functions of this package use.
var active = choose(os.Getenv("MT_CPU"), available())

// Level names the instruction set in use: "avx512vbmi", "avx512", "avx2", "neon" or "generic". The
// environment variable MT_CPU, read at start, limits the choice to that name
// and slower ones; any other value leaves it free.
func Level() string { return active.name }

// Levels names the instruction sets that this machine can run, fastest first.
func Levels() []string {
	var names []string
	for _, k := range available() {
		names = append(names, k.name)
	}
	return names
}

// Use makes one of Levels the instruction set in use until the next call, and
// returns the one that was in use before. It is for comparing them; nothing else
// may use this package meanwhile.
func Use(level string) (before string) {
	for _, k := range available() {
		if k.name == level {
			before, active = active.name, k
			return before
		}
	}
	panic(fmt.Sprintf("optim: instruction set %q: there are %v", level, Levels()))
}

// choose takes the first of the available kernels, fastest first and generic
// last, that limit allows.
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

// move updates n elements by a rule. m and v are its moments; nil: it does not have them.
func (k *kernels) move(by rule, x weightAt, m, v *float32, kind gradKind, grad *byte, n int, c *coefs) {
	whole := n / k.lanes * k.lanes
	if whole > 0 {
		k.moveWhole(by, x, m, v, kind, grad, whole, c)
	}
	if n > whole {
		generic.moveWhole(by, x.skip(whole), skip(m, whole), skip(v, whole), kind, skipGrad(kind, grad, whole), n-whole, c)
	}
}

// moveWhole is move for a multiple of the lanes.
func (k *kernels) moveWhole(by rule, x weightAt, m, v *float32, kind gradKind, grad *byte, n int, c *coefs) {
	if x.hi != nil {
		k.split[by][kind](x.hi, x.lo, m, v, grad, n, c)
	} else {
		k.plain[by][kind](x.w, m, v, grad, n, c)
	}
}

// prepared moves n elements of a matrix's momentum and writes what is handed to the device.
func (k *kernels) prepared(m *float32, kind gradKind, grad *byte, to gradKind, out *byte, n int, c *coefs) {
	whole := n / k.lanes * k.lanes
	if whole > 0 {
		k.prepare[kind][to](m, grad, out, whole, c)
	}
	if n > whole {
		generic.prepare[kind][to](skip(m, whole), skipGrad(kind, grad, whole), skipGrad(to, out, whole), n-whole, c)
	}
}

// sumSquares sums the squares of one block of n elements.
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

// skip points to the n-th element after p; nil where p is.
func skip[E any](p *E, n int) *E {
	if p == nil {
		return nil
	}
	return (*E)(unsafe.Add(unsafe.Pointer(p), n*int(unsafe.Sizeof(*p))))
}

// skipGrad points to the n-th gradient after p.
func skipGrad(kind gradKind, p *byte, n int) *byte {
	switch kind {
	case gradF32:
		return skip(p, 4*n)
	case gradBF16:
		return skip(p, 2*n)
	}
	return nil
}
