package optim

import (
	"math"
	"unsafe"

	"mt/base/bf16"
	"mt/model"
)

// This file updates weights without lower halves (model.Layout.BF16Master), which are stored in bf16 only. An update
// widens the weights to fp32, updates them, and rounds each to one of its two bf16 neighbours. The neighbour is drawn
// at random, the nearer one more often, so that the expected value is the number itself. Updates far smaller than the
// bf16 spacing are therefore not lost (stochastic rounding; arXiv:2010.06192).
//
// A draw depends only on the run's seed, the step, the layer and the element. So there is no state to save, and the
// bits do not depend on units, threads, devices and hosts.

// moveRounded is move for a tensor of bf16 weights without lower halves. It converts the weights to fp32, updates them
// and rounds them stochastically.
func (x *elements) moveRounded(by rule, tl *model.TensorLayout, at int64, m, v *float32, kind gradKind, grad *byte, n int, c *coefs) {
	hi := unsafe.Slice((*uint16)(unsafe.Pointer(&x.weight.Tile[tl.TileOff+2*at])), n)
	announceWrite(&hi[0], n)
	d := drawsOf(x.weight.Seed, x.step, x.weight.Layout.Index)
	wide := wides.Get().(*[2][stripElems]float32)
	defer wides.Put(wide)
	for i := 0; i < n; i += stripElems {
		k := min(stripElems, n-i)
		w, part := wide[1][:k], hi[i:i+k]
		widenBF16(w, part)
		active.move(by, weightAt{w: &w[0]}, skip(m, i), skip(v, i), kind, skipGrad(kind, grad, i), k, c)
		d.round(part, w, uint64(tl.Elem+at)+uint64(i))
	}
}

// draws gives the random bits for one layer in one step: 16 bits for each element, where elements count over all
// tensors of the layer. Its value d is the first state of a SplitMix64 sequence (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014). Elements 4·i to 4·i+3 use the i-th number of this sequence, the lowest 16 bits
// first.
type draws uint64

// gamma is the increment of SplitMix64's state from one random number to the next.
const gamma = 0x9e3779b97f4a7c15

// drawsOf returns the random bits for a layer in a step of a run with this seed.
func drawsOf(seed uint64, step int64, layer int) draws {
	return draws(mix(mix(mix(seed+gamma)+uint64(step)+gamma) + uint64(layer) + gamma))
}

// mix turns a state of SplitMix64 into a random number. It is the generator's output function.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// state returns the SplitMix64 state that gives the random bits of elements 4·i to 4·i+3.
func (d draws) state(i uint64) uint64 { return uint64(d) + (i+1)*gamma }

// four returns the random bits of elements 4·i to 4·i+3, 16 bits each.
func (d draws) four(i uint64) uint64 { return mix(d.state(i)) }

// roundElems is the number of elements that the rounding kernels process at a time.
const roundElems = 32

// round rounds the numbers of `from` stochastically to bf16 and writes them to `to`. `at` is the
// element number of the first one, counted over all tensors of the layer; it selects the random
// bits.
func (d draws) round(to []uint16, from []float32, at uint64) {
	alone := min(len(from), int(-at%4)) // elements before the first whole group of four, which shares one random number
	d.roundSome(to[:alone], from[:alone], at)
	to, from, at = to[alone:], from[alone:], at+uint64(alone)
	whole := len(from) / roundElems * roundElems
	if whole > 0 {
		var states [roundElems / 4]uint64
		for i := range states {
			states[i] = d.state(at/4 + uint64(i))
		}
		active.rounds.round(&from[0], &to[0], whole, &states)
	}
	d.roundSome(to[whole:], from[whole:], at+uint64(whole))
}

// roundSome does the work of round in plain Go, one element at a time. Its result has the same bits.
func (d draws) roundSome(to []uint16, from []float32, at uint64) {
	for i, x := range from {
		e := at + uint64(i)
		to[i] = roundBy(x, uint32(d.four(e/4)>>(16*(e%4)))&0xffff)
	}
}

// widenBF16 converts the bf16 numbers in `from` to fp32 in `to`. Both have the same length.
func widenBF16(to []float32, from []uint16) {
	whole := len(from) / roundElems * roundElems
	if whole > 0 {
		active.rounds.widen(&from[0], &to[0], whole)
	}
	for i, b := range from[whole:] {
		to[whole+i] = bf16.Widen(b)
	}
}

func widenGeneric(from *uint16, to *float32, n int) {
	out := unsafe.Slice(to, n)
	for i, b := range unsafe.Slice(from, n) {
		out[i] = bf16.Widen(b)
	}
}

func roundGeneric(from *float32, to *uint16, n int, states *[roundElems / 4]uint64) {
	in, out, state := unsafe.Slice(from, n), unsafe.Slice(to, n), states[0]
	for i := 0; i < n; i += 4 {
		bits, x, y := mix(state), in[i:i+4:i+4], out[i:i+4:i+4]
		y[0] = roundBy(x[0], uint32(bits)&0xffff)
		y[1] = roundBy(x[1], uint32(bits>>16)&0xffff)
		y[2] = roundBy(x[2], uint32(bits>>32)&0xffff)
		y[3] = roundBy(x[3], uint32(bits>>48))
		state += gamma
	}
}

// roundBy rounds x to one of its two bf16 neighbours. draw has 16 random bits. The part of x that bf16 cuts off is a
// number below 2^16. If it exceeds 2^16 − 1 − draw, x is rounded away from zero, otherwise towards zero. So the
// probability of rounding away is proportional to the part. Numbers above the largest bf16 may become infinities; NaNs
// stay NaNs.
func roundBy(x float32, draw uint32) uint16 {
	bits := math.Float32bits(x)
	if bits&expMask == expMask {
		return bf16.Round(x)
	}
	return uint16((bits + draw) >> 16)
}
