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

// taps reads the input rows of a convolution over the last tokens. A tap is one of these tokens. Before the first token
// of a sequence it reads the tail, the stored last rows of an earlier call.
type taps struct {
	x, tail         act
	hasTail, gated  bool
	cu              []int32
	w               []float32 // (taps, channels)
	ones            []float32
	bias            []float32 // nil: none
	channels, count int
	stride, width   int // elements from row to row of x, and of the tail
}

// Buffers of a scratch that convolutions use.
const (
	convW = iota
	convOnes
	convSum
	convTerm
	convRow
	convOut
	convSlope
	convGate
	convProduct
	convPut
	convRing // MostTaps buffers
)

func tapsOf(sc *scratch, w, bias []float32, channels, count int, gated bool) taps {
	c := taps{w: sc.f32(convW, count*channels), ones: ones(sc, convOnes, channels), bias: bias, channels: channels, count: count, gated: gated,
		width: op.ConvWidth(channels, gated)}
	for i, v := range w {
		c.w[i%count*channels+i/count] = v
	}
	return c
}

// sequence returns the first token of the sequence that has token t, and the token after its last.
func (c *taps) sequence(t int) (first, end int) {
	i := sort.Search(len(c.cu), func(i int) bool { return int(c.cu[i]) > t })
	return int(c.cu[i-1]), int(c.cu[i])
}

// row returns the input row that tap j of token t multiplies. It returns nil for a row of zeros, before the sequence.
// `first` is the sequence's first token.
func (c *taps) row(sc *scratch, t, first, j int) []float32 {
	switch from := t - c.count + 1 + j; {
	case from >= first:
		return c.input(sc, c.x, from*c.stride)
	case c.hasTail:
		return c.input(sc, c.tail, (from-first+c.count-1)*c.width)
	}
	return nil
}

// input returns the input of the convolution from the row of x that begins at element at. It is the row itself or, for
// a gated convolution, the row's part b times its part x.
func (c *taps) input(sc *scratch, x act, at int) []float32 {
	if !c.gated {
		return x.load(sc, convRow, at, c.channels)
	}
	y := sc.f32(convProduct, c.channels)
	vec.ScaleMul(y, x.load(sc, convGate, at, c.channels), x.load(sc, convRow, at+2*c.channels, c.channels), 1)
	return y
}

// sum returns the result of the convolution for token t, before SiLU or the gate is applied. `first` is the first token
// of the sequence.
func (c *taps) sum(sc *scratch, t, first int) []float32 {
	sum, term := sc.f32(convSum, c.channels), sc.f32(convTerm, c.channels)
	clear(sum)
	if c.bias != nil {
		copy(sum, c.bias)
	}
	for j := range c.count {
		if x := c.row(sc, t, first, j); x != nil {
			vec.ScaleMul(term, x, c.w[j*c.channels:(j+1)*c.channels], 1)
			vec.Add(sum, term)
		}
	}
	return sum
}

// shortConv computes one row after another. Within a row it adds one tap after another, each for all channels.
func shortConv(s *stream, a *op.ShortConv) error {
	width := op.ConvWidth(a.C, a.Gated)
	reads(a.X, a.T, a.XStride, width)
	reads(a.W, 1, 0, a.C*a.Taps)
	reads(a.Bias, 1, 0, a.C)
	reads(a.Cu, 1, 0, a.Seqs+1)
	writes(a.Y, 1, 0, a.T*a.C)
	writes(a.Tail, 1, 0, (a.Taps-1)*width)
	cu, err := tokensOf(i32s(a.Cu, a.Seqs+1), a.T)
	if err != nil || a.T == 0 || a.C == 0 {
		return err
	}
	out, w, bias := actOf(a.Y), f32s(a.W, a.C*a.Taps), f32s(a.Bias, a.C)
	s.forRows(a.T, 8*a.C, func(sc *scratch, from, to int) {
		c := tapsOf(sc, w, bias, a.C, a.Taps, a.Gated)
		c.x, c.tail, c.hasTail, c.cu, c.stride = actOf(a.X), actOf(a.Tail), !a.Tail.None(), cu, a.XStride
		for t := from; t < to; t++ {
			first, _ := c.sequence(t)
			sum := c.sum(sc, t, first)
			y := out.target(sc, convOut, t*a.C, a.C)
			if a.Gated {
				vec.ScaleMul(y, sum, c.x.load(sc, convGate, t*a.XStride+a.C, a.C), 1)
			} else {
				vec.SwiGLU(y, sum, c.ones)
			}
			out.store(t*a.C, y)
		}
	})
	if !a.Tail.None() {
		keepTail(s, a)
	}
	return nil
}

// keepTail overwrites the tail with the last rows of the old tail followed by X, so that a later call can continue the
// sequence.
func keepTail(s *stream, a *op.ShortConv) {
	sc := s.scratch.get()
	defer s.scratch.put(sc)
	x, tail, width := actOf(a.X), actOf(a.Tail), op.ConvWidth(a.C, a.Gated)
	for i := range a.Taps - 1 {
		var row []float32
		if t := a.T - a.Taps + 1 + i; t >= 0 {
			row = x.load(sc, convRow, t*a.XStride, width)
		} else {
			row = tail.load(sc, convRow, (t+a.Taps-1)*width, width)
		}
		tail.put(i*width, row)
	}
}

// tokensOf returns cu, the bounds of sequences, or an error if the sequences do not cover exactly tokens tokens.
func tokensOf(cu []int32, tokens int) ([]int32, error) {
	if err := ascending("Cu", cu, tokens); err != nil {
		return nil, err
	}
	if last := cu[len(cu)-1]; cu[0] != 0 || int(last) != tokens {
		return nil, fmt.Errorf("sequences go from %d to %d: want all of %d tokens", cu[0], last, tokens)
	}
	return cu, nil
}

// shortConvBackward goes over blocks of rows. A ring of buffers keeps, for the last Taps tokens,
// the gradients of the convolution's result before SiLU or the gate. A row of DX is complete once
// the last token that reads this row is done.
func shortConvBackward(s *stream, a *op.ShortConvBackward) error {
	width := op.ConvWidth(a.C, a.Gated)
	reads(a.X, a.T, a.XStride, width)
	reads(a.W, 1, 0, a.C*a.Taps)
	reads(a.Bias, 1, 0, a.C)
	reads(a.Cu, 1, 0, a.Seqs+1)
	reads(a.DY, 1, 0, a.T*a.C)
	writes(a.DX, a.T, a.DXStride, width)
	writes(a.DW, 1, 0, a.C*a.Taps)
	writes(a.DBias, 1, 0, a.C)
	cu, err := tokensOf(i32s(a.Cu, a.Seqs+1), a.T)
	if err != nil || a.T == 0 || a.C == 0 {
		return err
	}
	w, bias, wide := f32s(a.W, a.C*a.Taps), f32s(a.Bias, a.C), a.C*a.Taps
	sums := s.sumOfRows(wide+a.C, a.T, !a.DW.None() || !a.DBias.None(), func(sc *scratch, dw []float32, from, to int) {
		c := tapsOf(sc, w, bias, a.C, a.Taps, a.Gated)
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
	if !a.DW.None() {
		vec.Add(f32s(a.DW, wide), sums[:wide])
	}
	if !a.DBias.None() {
		vec.Add(f32s(a.DBias, a.C), sums[wide:])
	}
	return nil
}

// slope writes the gradient of token t's convolution result, before SiLU or the gate, to the
// token's buffer in the ring. With adds it also adds the gradients of the taps and the bias to dw,
// and writes the gradient of the gate.
func (c *taps) slope(sc *scratch, a *op.ShortConvBackward, t int, dw []float32, adds bool) {
	first, _ := c.sequence(t)
	sum, d := c.sum(sc, t, first), sc.f32(convRing+t%a.Taps, a.C)
	dy := actOf(a.DY).load(sc, convOut, t*a.C, a.C)
	if a.Gated {
		vec.ScaleMul(d, dy, c.x.load(sc, convGate, t*a.XStride+a.C, a.C), 1)
		if adds {
			vec.ScaleMul(sum, sum, dy, 1)
			actOf(a.DX).put(t*a.DXStride+a.C, sum)
		}
	} else {
		vec.SwiGLUGrad(d, sc.f32(convSlope, a.C), nil, dy, sum, c.ones)
	}
	if adds {
		vec.Add(dw[a.C*a.Taps:], d)
	}
	for j := 0; adds && j < a.Taps; j++ {
		for i, v := range c.row(sc, t, first, j) {
			dw[i*a.Taps+j] += d[i] * v
		}
	}
}

// spread computes the row of DX for token u from the ring's gradients of all tokens whose convolution reads the row.
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
	if !a.Gated {
		actOf(a.DX).put(u*a.DXStride, sum)
		return
	}
	at, dx := u*a.XStride, sc.f32(convPut, a.C)
	vec.ScaleMul(dx, sum, c.x.load(sc, convRow, at+2*a.C, a.C), 1)
	actOf(a.DX).put(u*a.DXStride, dx)
	vec.ScaleMul(dx, sum, c.x.load(sc, convGate, at, a.C), 1)
	actOf(a.DX).put(u*a.DXStride+2*a.C, dx)
}
