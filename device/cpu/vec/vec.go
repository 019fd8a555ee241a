package vec

import (
	"fmt"
	"os"
	"unsafe"
)

// The levels: the instruction sets for which the package has kernels, from the slowest to the
// fastest.
const (
	Generic = "generic"
	AVX2    = "avx2" // as fast as NEON on arm64
	NEON    = "neon"
	AVX512  = "avx512"
)

// LevelEnv is the environment variable that names the fastest level allowed.
const LevelEnv = "MT_CPU"

// kernels is one implementation of all functions of the package, for one level. Each pointer
// argument is the address of the first of n elements.
type kernels struct {
	level        string
	eights       bool // widen and narrow take a multiple of 8 elements
	widen        func(dst *float32, src *uint16, n int)
	narrow       func(dst *uint16, src *float32, n int)
	add          func(y, x *float32, n int)
	scale        func(y, x *float32, n int, a float32)
	shift        func(y, x *float32, n int, a float32)
	scaleMul     func(y, x, w *float32, n int, a float32)
	dot          func(x, y *float32, n int) float32
	sum          func(x *float32, n int) float32
	dot3         func(x, y, w *float32, n int) float32
	normGrad     func(dx, dw, dy, x, w *float32, n int, rstd, c float32)
	normGradAdd  func(dx, dw, dy, x, w *float32, n int, rstd, c float32)
	rotate       func(x, cos, sin *float32, half, heads, stride int, sign float32)
	max          func(x *float32, n int) float32
	expSum       func(dst, x *float32, n int, scale, shift float32) float32
	sumExp       func(x *float32, n int, scale, shift float32) float32
	softmaxStrip func(x *float32, stride, rows, n, most, width int, factor float32, top, sum *float32)
	gradStrip    func(x, dx *float32, stride, rows, n, most, width int, factor, scale float32, lse, delta *float32)
	swiglu       unit
	geglu        unit
	erfglu       unit
	tileRows     []tileFunc // by height, from 1; a is read by rows
	tileCols     []tileFunc // by height, from 1; a is read by columns
	transpose    func(dst, src *float32, stride, blocks int)
}

// tileFunc is a kernel that multiplies a fixed number of rows of a with the panels of b. Strides
// are in bytes. If a is read by rows, element (r, i) is at r strides plus i floats. If it is read
// by columns, the element is at i strides plus r floats.
type tileFunc func(k int, a *float32, astride int, b *float32, bpanel int, c *float32, cstride, panels int, acc bool)

// chosen is the set of kernels in use. chosenErr is not nil if the environment variable LevelEnv
// has an unknown value.
var chosen, chosenErr = choose(os.Getenv(LevelEnv), available())

// choose returns the fastest of the available kernels that is not above the level limit; "": no limit. available is
// sorted from the fastest to plain Go.
func choose(limit string, available []*kernels) (*kernels, error) {
	rank := map[string]int{Generic: 0, AVX2: 1, NEON: 1, AVX512: 2}
	most, ok := rank[limit]
	if limit != "" && !ok {
		return &generic, fmt.Errorf("vec: %s=%q: want %s, %s, %s or %s", LevelEnv, limit, AVX512, AVX2, NEON, Generic)
	}
	for _, k := range available {
		if limit == "" || rank[k.level] <= most {
			return k, nil
		}
	}
	return &generic, nil
}

// Level returns the level in use: this machine's fastest, limited by LevelEnv. An unknown value of LevelEnv is an
// error.
func Level() (string, error) { return chosen.level, chosenErr }

func first[E float32 | uint16](x []E) *E { return unsafe.SliceData(x) }

// same panics unless all lengths are n. The message omits the lengths, because otherwise they would escape to the
// heap in every call.
func same(n int, lengths ...int) {
	for _, l := range lengths {
		if l != n {
			panic("vec: operands differ in length")
		}
	}
}

// Widen writes dst = src, from bf16 bit patterns to fp32.
func Widen(dst []float32, src []uint16) {
	same(len(dst), len(src))
	n := len(dst)
	if chosen.eights {
		n &^= 7
		genericWiden(first(dst[n:]), first(src[n:]), len(dst)-n)
	}
	chosen.widen(first(dst), first(src), n)
}

// Narrow writes dst = src, rounded to the nearest bf16, ties to even. NaNs stay NaNs.
func Narrow(dst []uint16, src []float32) {
	same(len(dst), len(src))
	n := len(dst)
	if chosen.eights {
		n &^= 7
		genericNarrow(first(dst[n:]), first(src[n:]), len(dst)-n)
	}
	chosen.narrow(first(dst), first(src), n)
}

// Add computes y += x.
func Add(y, x []float32) {
	same(len(y), len(x))
	chosen.add(first(y), first(x), len(y))
}

// Scale computes y = a·x; y may be x.
func Scale(y, x []float32, a float32) {
	same(len(y), len(x))
	chosen.scale(first(y), first(x), len(y), a)
}

// Shift computes y = x + a; y may be x.
func Shift(y, x []float32, a float32) {
	same(len(y), len(x))
	chosen.shift(first(y), first(x), len(y), a)
}

// ScaleMul computes y = (a·x)·w, element by element; y may be x.
func ScaleMul(y, x, w []float32, a float32) {
	same(len(y), len(x), len(w))
	chosen.scaleMul(first(y), first(x), first(w), len(y), a)
}

// Dot returns Σ x·y.
func Dot(x, y []float32) float32 {
	same(len(x), len(y))
	return chosen.dot(first(x), first(y), len(x))
}

// Sum returns Σ x.
func Sum(x []float32) float32 { return chosen.sum(first(x), len(x)) }

// Dot3 returns Σ x·y·w.
func Dot3(x, y, w []float32) float32 {
	same(len(x), len(y), len(w))
	return chosen.dot3(first(x), first(y), first(w), len(x))
}

// NormGrad is the last pass of RMSNorm's backward over a row: dw += rstd·dy·x and dx = rstd·dy·w − c·x. With add it
// computes dx += instead of dx =. Without add, dx may be dy.
func NormGrad(dx, dw, dy, x, w []float32, rstd, c float32, add bool) {
	same(len(dx), len(dw), len(dy), len(x), len(w))
	f := chosen.normGrad
	if add {
		f = chosen.normGradAdd
	}
	f(first(dx), first(dw), first(dy), first(x), first(w), len(dx), rstd, c)
}

// Rotate rotates heads vectors of x, stride floats apart. It rotates each pair (i, i + len(cos)) by the angle with
// cosine cos[i] and sine sin[i]. With inverse it rotates back.
func Rotate(x, cos, sin []float32, heads, stride int, inverse bool) {
	same(len(cos), len(sin))
	if heads == 0 || len(cos) == 0 {
		return
	}
	_ = x[(heads-1)*stride+2*len(cos)-1]
	sign := float32(1)
	if inverse {
		sign = -1
	}
	chosen.rotate(first(x), first(cos), first(sin), len(cos), heads, stride, sign)
}

// RotatePairs rotates like Rotate, but the pairs are (2i, 2i + 1). It is plain Go on every machine: the matrix products
// that compute the rows take a hundred times as long.
func RotatePairs(x, cos, sin []float32, heads, stride int, inverse bool) {
	same(len(cos), len(sin))
	sign := float32(1)
	if inverse {
		sign = -1
	}
	for h := range heads {
		row := x[h*stride:][:2*len(cos)]
		for i, c := range cos {
			u, v, s := row[2*i], row[2*i+1], sign*sin[i]
			row[2*i], row[2*i+1] = u*c-v*s, v*c+u*s
		}
	}
}

// Max returns the largest element of x, −Inf if x is empty. It may ignore a NaN.
func Max(x []float32) float32 { return chosen.max(first(x), len(x)) }

// ExpSum writes dst = exp(scale·x − shift) and returns the sum; dst may be x. The relative error of an exponential is
// at most 2e-7, in addition to the effect of its argument's error. The exponential is 0 for −Inf, +Inf beyond the
// range of fp32, and NaN for NaN.
func ExpSum(dst, x []float32, scale, shift float32) float32 {
	same(len(dst), len(x))
	return chosen.expSum(first(dst), first(x), len(x), scale, shift)
}

// SumExp returns Σ exp(scale·x − shift), with the same bits as ExpSum, but writes no exponentials.
func SumExp(x []float32, scale, shift float32) float32 {
	return chosen.sumExp(first(x), len(x), scale, shift)
}
