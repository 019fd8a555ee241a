package op

import "mt/device"

// CopyHeads copies C elements of each of Heads heads of T rows from Src to Dst, bit by bit,
// and clears the Zeros elements behind them in Dst. The two do not overlap.
//
//	Dst, Src of one type, act: element (t, head, c) at t·DstStride + head·DstHead + c and at
//	t·SrcStride + head·SrcHead + c. With a SrcHead of 0 all heads get the same elements
type CopyHeads struct {
	Dst, Src           device.Tensor
	T, Heads, C, Zeros int
	DstStride, DstHead int
	SrcStride, SrcHead int
}

// Name implements device.Op.
func (a *CopyHeads) Name() string { return "CopyHeads" }

// Check implements device.Op. It refuses heads of Dst that overlap.
func (a *CopyHeads) Check() error {
	var c checker
	c.sizes(a.T, a.Heads, a.C, a.Zeros, a.DstStride, a.DstHead, a.SrcStride, a.SrcHead)
	if a.Heads > 1 && a.DstHead < a.C+a.Zeros {
		c.fail("DstHead is %d: heads of %d elements overlap", a.DstHead, a.C+a.Zeros)
	}
	c.act("Dst", a.Dst, strided(a.T, a.DstStride, strided(a.Heads, a.DstHead, a.C+a.Zeros)))
	c.tensor("Src", a.Src, strided(a.T, a.SrcStride, strided(a.Heads, a.SrcHead, a.C)), a.Dst.DType)
	return c.err
}

// Bytes implements Mover.
func (a *CopyHeads) Bytes() int64 {
	read := int64(a.Heads)
	if a.SrcHead == 0 {
		read = min(read, 1)
	}
	return int64(a.T) * (int64(a.Heads)*int64(a.C+a.Zeros) + read*int64(a.C)) * a.Dst.DType.Size()
}

// SumHeads writes C elements of each of T rows of Dst: the sum over Heads heads of Src, in
// fp32 in the order of the heads, rounded once. It is the gradient of a CopyHeads with a
// SrcHead of 0.
//
//	Dst, Src of one type, act: element (t, c) at t·DstStride + c, element (t, head, c) at
//	t·SrcStride + head·SrcHead + c; the two do not overlap
type SumHeads struct {
	Dst, Src                      device.Tensor
	T, Heads, C                   int
	DstStride, SrcStride, SrcHead int
}

// Name implements device.Op.
func (a *SumHeads) Name() string { return "SumHeads" }

// Check implements device.Op.
func (a *SumHeads) Check() error {
	var c checker
	c.sizes(a.T, a.Heads, a.C, a.DstStride, a.SrcStride, a.SrcHead)
	c.act("Dst", a.Dst, strided(a.T, a.DstStride, a.C))
	c.tensor("Src", a.Src, strided(a.T, a.SrcStride, strided(a.Heads, a.SrcHead, a.C)), a.Dst.DType)
	return c.err
}

// Bytes implements Mover.
func (a *SumHeads) Bytes() int64 {
	return int64(a.T) * int64(a.C) * int64(a.Heads+1) * a.Dst.DType.Size()
}
