package op

import "mt/device"

// CopyHeads copies C elements from each head of Src to Dst, bit by bit, for T rows of Heads heads. It clears the
// Zeros elements that follow in Dst. Dst and Src do not overlap.
//
//	Dst, Src of one type, act: element (t, head, c) is at t·DstStride + head·DstHead + c in Dst and at t·SrcStride +
//	head·SrcHead + c in Src. With a SrcHead of 0 all heads get the same elements
type CopyHeads struct {
	Dst, Src           device.Tensor
	T, Heads, C, Zeros int
	DstStride, DstHead int
	SrcStride, SrcHead int
}

// Name implements device.Op.
func (a *CopyHeads) Name() string { return "CopyHeads" }

// Check implements device.Op. It also refuses overlapping heads of Dst.
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

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *CopyHeads) Bytes() int64 {
	read := int64(a.Heads)
	if a.SrcHead == 0 {
		read = min(read, 1)
	}
	return int64(a.T) * (int64(a.Heads)*int64(a.C+a.Zeros) + read*int64(a.C)) * a.Dst.DType.Size()
}

// SumHeads sums C elements over Heads heads of Src into each of T rows of Dst. It adds the heads in their order in
// fp32 and rounds once. It is the gradient of a CopyHeads with a SrcHead of 0.
//
//	Dst, Src of one type, act: element (t, c) is at t·DstStride + c in Dst, element (t, head, c) at t·SrcStride +
//	head·SrcHead + c in Src; Dst and Src do not overlap
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

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *SumHeads) Bytes() int64 {
	return int64(a.T) * int64(a.C) * int64(a.Heads+1) * a.Dst.DType.Size()
}
