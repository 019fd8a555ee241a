package op

import "mt/device"

// ShortConv writes Y: a causal convolution of each channel of X along each sequence, then SiLU. Each channel has its
// own taps. y[t] = SiLU(bias + Σ_j w[j]·x[t−Taps+1+j]), where x is 0 before a sequence begins.
//
// With Gated each row of X holds three vectors of C elements, b, c and x. The convolution reads b·x, and c takes the
// place of SiLU: y[t] = c[t]·(bias + Σ_j w[j]·(b·x)[t−Taps+1+j]). Source: arXiv:2511.23404 (LFM2).
//
//	X act: element (t, c) at t·XStride + c; Y (T, C) act; W (C, Taps) f32; Bias none or (C) f32
//	Cu (Seqs+1) i32: the first token of each sequence, then the end of the last
//	Tail: none, or (Taps−1, ConvWidth) act for a single sequence: the rows of X before its first row, replaced by its
//	last rows
type ShortConv struct {
	Y, X, W, Bias, Cu, Tail   device.Tensor
	Seqs, T, C, Taps, XStride int
	Gated                     bool
}

// ConvWidth returns how many columns of X a convolution of the given channels reads.
func ConvWidth(channels int, gated bool) int {
	if gated {
		return 3 * channels
	}
	return channels
}

// Name implements device.Op.
func (a *ShortConv) Name() string { return "ShortConv" }

// Check implements device.Op. The values of Cu are not checked.
func (a *ShortConv) Check() error {
	var c checker
	c.sizes(a.Seqs, a.T, a.C, a.Taps, a.XStride)
	c.taps(a.Taps)
	c.act("X", a.X, strided(a.T, a.XStride, ConvWidth(a.C, a.Gated)))
	c.optional("Bias", a.Bias, a.C, device.F32)
	c.tensor("Y", a.Y, a.T*a.C, a.X.DType)
	c.tensor("W", a.W, a.C*a.Taps, device.F32)
	c.tensor("Cu", a.Cu, a.Seqs+1, device.I32)
	c.optional("Tail", a.Tail, (a.Taps-1)*ConvWidth(a.C, a.Gated), a.X.DType)
	c.single("Tail", a.Tail, a.Seqs)
	return c.err
}

// ShortConvBackward overwrites DX and accumulates DW (C, Taps) f32 and DBias (C) f32, each unless it is none. It reads
// X as ShortConv did and DY (T, C) act. There is no Tail: sequences begin with zeros.
//
//	DX act: element (t, c) at t·DXStride + c, with the columns of X. It does not overlap DY
type ShortConvBackward struct {
	DX, DW, DBias, DY, X, W, Bias, Cu   device.Tensor
	Seqs, T, C, Taps, XStride, DXStride int
	Gated                               bool
}

// Name implements device.Op.
func (a *ShortConvBackward) Name() string { return "ShortConvBackward" }

// Check implements device.Op.
func (a *ShortConvBackward) Check() error {
	var c checker
	c.sizes(a.Seqs, a.T, a.C, a.Taps, a.XStride, a.DXStride)
	c.taps(a.Taps)
	width := ConvWidth(a.C, a.Gated)
	c.act("X", a.X, strided(a.T, a.XStride, width))
	c.tensor("DX", a.DX, strided(a.T, a.DXStride, width), a.X.DType)
	c.optional("Bias", a.Bias, a.C, device.F32)
	c.optional("DBias", a.DBias, a.C, device.F32)
	c.tensor("DY", a.DY, a.T*a.C, a.X.DType)
	c.tensor("W", a.W, a.C*a.Taps, device.F32)
	c.optional("DW", a.DW, a.C*a.Taps, device.F32)
	c.tensor("Cu", a.Cu, a.Seqs+1, device.I32)
	return c.err
}

// MostTaps is the largest number of taps that a ShortConv may have.
const MostTaps = 8

// taps checks that n is from 1 to MostTaps.
func (c *checker) taps(n int) {
	if n < 1 || n > MostTaps {
		c.fail("%d taps: want 1 to %d", n, MostTaps)
	}
}

// single checks a state that one call leaves for the next. Such a state belongs to one sequence, so
// seqs must be 1 unless t is none.
func (c *checker) single(name string, t device.Tensor, seqs int) {
	if !t.None() && seqs != 1 {
		c.fail("%s with %d sequences: want one", name, seqs)
	}
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *ShortConv) Bytes() int64 {
	return int64(a.T*(a.C+ConvWidth(a.C, a.Gated))) * a.X.DType.Size()
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *ShortConvBackward) Bytes() int64 {
	return int64(a.T*(a.C+2*ConvWidth(a.C, a.Gated))) * a.X.DType.Size()
}
