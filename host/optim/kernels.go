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

// plainKernel updates n elements of an fp32 plane, splitKernel n elements of a
// weight in two planes. n is a multiple of the level's lanes.
type (
	plainKernel func(w, m, v *float32, grad *byte, n int, c *[8]float32)
	splitKernel func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *[8]float32)
	sumKernel   func(x *byte, n int, lanes *[sumLanes]float64) // n is a multiple of sumLanes
)

// codeKernels turn n numbers into codes of a byte and back. n is a multiple of 128.
type codeKernels struct {
	decode   func(values *float32, codes *byte, out *float32, n int, scale *float32)
	encode   func(least *byte, next, x *float32, codes *byte, n int, scale *float32) // next: codebook.from behind the first
	greatest func(x *float32, n int, lanes *[16]uint32)                              // the bits of magnitudes, by lane; some may be 0
}

// kernels is the implementation for one instruction set.
type kernels struct {
	name  string
	lanes int // how many elements a kernel takes at a time; generic updates those left over
	plain [gradKinds]plainKernel
	split [gradKinds]splitKernel
	sum   [gradKinds]sumKernel // there is none for gradZero
	codes codeKernels
}

// active is the implementation that the functions of this package use.
var active = choose(os.Getenv("MT_CPU"), available())

// Level names the instruction set in use: "avx512", "avx2" or "generic". The
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
	rank := map[string]int{"generic": 0, "avx2": 1, "avx512": 2}
	most, limited := rank[limit]
	for _, k := range available {
		if !limited || rank[k.name] <= most {
			return k
		}
	}
	return &generic
}

func (k *kernels) adamPlain(kind gradKind, w, m, v *float32, grad *byte, n int, c *coefs) {
	whole := n / k.lanes * k.lanes
	if whole > 0 {
		k.plain[kind](w, m, v, grad, whole, (*[8]float32)(c))
	}
	if n > whole {
		generic.plain[kind](skip(w, whole), skip(m, whole), skip(v, whole), skipGrad(kind, grad, whole), n-whole, (*[8]float32)(c))
	}
}

func (k *kernels) adamSplit(kind gradKind, hi, lo *uint16, m, v *float32, grad *byte, n int, c *coefs) {
	whole := n / k.lanes * k.lanes
	if whole > 0 {
		k.split[kind](hi, lo, m, v, grad, whole, (*[8]float32)(c))
	}
	if n > whole {
		generic.split[kind](skip(hi, whole), skip(lo, whole), skip(m, whole), skip(v, whole),
			skipGrad(kind, grad, whole), n-whole, (*[8]float32)(c))
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

// skip points to the n-th element after p.
func skip[E any](p *E, n int) *E {
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
