package cpu

import (
	"fmt"
	"sort"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, shortConv)
	op.Add(&table, shortConvBackward)
}

// taps reads rows of a convolution's input, including the tail before a sequence.
type taps struct {
	x, tail         act
	hasTail         bool
	cu              []int32
	w               []float32 // (taps, channels)
	ones            []float32
	channels, count int
	stride          int
}

// Buffers of a convolution.
const (
	convW = iota
	convOnes
	convSum
	convTerm
	convRow
	convOut
	convSlope
	convRing // MostTaps buffers
)

func tapsOf(sc *scratch, w []float32, channels, count int) taps {
	c := taps{w: sc.f32(convW, count*channels), ones: ones(sc, convOnes, channels), channels: channels, count: count}
	for i, v := range w {
		c.w[i%count*channels+i/count] = v
	}
	return c
}

// sequence returns the first token and the end of token t's sequence.
func (c *taps) sequence(t int) (first, end int) {
	i := sort.Search(len(c.cu), func(i int) bool { return int(c.cu[i]) > t })
	return int(c.cu[i-1]), int(c.cu[i])
}

// row returns the input row of tap j of token t; nil: 0. first is the first token of the sequence.
func (c *taps) row(sc *scratch, t, first, j int) []float32 {
	switch from := t - c.count + 1 + j; {
	case from >= first:
		return c.x.load(sc, convRow, from*c.stride, c.channels)
	case c.hasTail:
		return c.tail.load(sc, convRow, (from-first+c.count-1)*c.channels, c.channels)
	}
	return nil
}

// sum returns the convolution of token t before SiLU.
func (c *taps) sum(sc *scratch, t, first int) []float32 {
	sum, term := sc.f32(convSum, c.channels), sc.f32(convTerm, c.channels)
	clear(sum)
	for j := range c.count {
		if x := c.row(sc, t, first, j); x != nil {
			vec.ScaleMul(term, x, c.w[j*c.channels:(j+1)*c.channels], 1)
			vec.Add(sum, term)
		}
	}
	return sum
}

// shortConv computes row after row, with one tap of all channels at a time.
func shortConv(s *stream, a *op.ShortConv) error {
	reads(a.X, a.T, a.XStride, a.C)
	reads(a.W, 1, 0, a.C*a.Taps)
	reads(a.Cu, 1, 0, a.Seqs+1)
	writes(a.Y, 1, 0, a.T*a.C)
	writes(a.Tail, 1, 0, (a.Taps-1)*a.C)
	cu, err := tokensOf(i32s(a.Cu, a.Seqs+1), a.T)
	if err != nil || a.T == 0 || a.C == 0 {
		return err
	}
	out, w := actOf(a.Y), f32s(a.W, a.C*a.Taps)
	s.forRows(a.T, 8*a.C, func(sc *scratch, from, to int) {
		c := tapsOf(sc, w, a.C, a.Taps)
		c.x, c.tail, c.hasTail, c.cu, c.stride = actOf(a.X), actOf(a.Tail), !a.Tail.None(), cu, a.XStride
		for t := from; t < to; t++ {
			first, _ := c.sequence(t)
			sum := c.sum(sc, t, first)
			y := out.target(sc, convOut, t*a.C, a.C)
			vec.SwiGLU(y, sum, c.ones)
			out.store(t*a.C, y)
		}
	})
	if !a.Tail.None() {
		keepTail(s, a)
	}
	return nil
}

// keepTail copies the last rows of tail and X together into the tail.
func keepTail(s *stream, a *op.ShortConv) {
	sc := s.scratch.get()
	defer s.scratch.put(sc)
	x, tail := actOf(a.X), actOf(a.Tail)
	for i := range a.Taps - 1 {
		var row []float32
		if t := a.T - a.Taps + 1 + i; t >= 0 {
			row = x.load(sc, convRow, t*a.XStride, a.C)
		} else {
			row = tail.load(sc, convRow, (t+a.Taps-1)*a.C, a.C)
		}
		tail.put(i*a.C, row)
	}
}

// tokensOf checks that the bounds of sequences cover exactly tokens tokens.
func tokensOf(cu []int32, tokens int) ([]int32, error) {
	if err := ascending("Cu", cu, tokens); err != nil {
		return nil, err
	}
	if last := cu[len(cu)-1]; cu[0] != 0 || int(last) != tokens {
		return nil, fmt.Errorf("sequences go from %d to %d: want all of %d tokens", cu[0], last, tokens)
	}
	return cu, nil
}

// shortConvBackward goes over blocks of rows. The gradients before SiLU of the last Taps tokens are in a ring. A row
// of DX is complete once the last token that reads it is done.
func shortConvBackward(s *stream, a *op.ShortConvBackward) error {
	reads(a.X, a.T, a.XStride, a.C)
	reads(a.W, 1, 0, a.C*a.Taps)
	reads(a.Cu, 1, 0, a.Seqs+1)
	reads(a.DY, 1, 0, a.T*a.C)
	writes(a.DX, a.T, a.DXStride, a.C)
	writes(a.DW, 1, 0, a.C*a.Taps)
	cu, err := tokensOf(i32s(a.Cu, a.Seqs+1), a.T)
	if err != nil || a.T == 0 || a.C == 0 {
		return err
	}
	w := f32s(a.W, a.C*a.Taps)
	s.sumRows(a.DW, a.C*a.Taps, a.T, func(sc *scratch, dw []float32, from, to int) {
		c := tapsOf(sc, w, a.C, a.Taps)
		c.x, c.cu, c.stride = actOf(a.X), cu, a.XStride
		for t := from; t < to+a.Taps-1; t++ {
			if t < a.T {
				c.slope(sc, a, t, dw, t < to)
			}
			if u := t - a.Taps + 1; u >= from {
				c.spread(sc, a, u)
			}
		}
	})
	return nil
}

// slope writes the gradient before SiLU of token t to its buffer in the ring, and adds to dw if adds is set.
func (c *taps) slope(sc *scratch, a *op.ShortConvBackward, t int, dw []float32, adds bool) {
	first, _ := c.sequence(t)
	sum, d := c.sum(sc, t, first), sc.f32(convRing+t%a.Taps, a.C)
	dy := actOf(a.DY).load(sc, convOut, t*a.C, a.C)
	vec.SwiGLUGrad(d, sc.f32(convSlope, a.C), nil, dy, sum, c.ones)
	for j := 0; adds && j < a.Taps; j++ {
		for i, v := range c.row(sc, t, first, j) {
			dw[i*a.Taps+j] += d[i] * v
		}
	}
}

// spread computes DX of token u from the gradients of the tokens that read it.
func (c *taps) spread(sc *scratch, a *op.ShortConvBackward, u int) {
	_, end := c.sequence(u)
	sum, term := sc.f32(convSum, a.C), sc.f32(convTerm, a.C)
	clear(sum)
	for j := range a.Taps {
		if t := u + a.Taps - 1 - j; t < end {
			vec.ScaleMul(term, sc.f32(convRing+t%a.Taps, a.C), c.w[j*a.C:(j+1)*a.C], 1)
			vec.Add(sum, term)
		}
	}
	actOf(a.DX).put(u*a.DXStride, sum)
}
