package op

import "mt/device"

// CopyColumns copies C elements from each of T rows of Src to the same row of Dst, bit by bit. Dst and Src do not
// overlap.
//
//	Dst, Src (T, C) of one type, act, with DstStride and SrcStride elements from row to row
type CopyColumns struct {
	Dst, Src             device.Tensor
	T, C                 int
	DstStride, SrcStride int
}

// Name implements device.Op.
func (a *CopyColumns) Name() string { return "CopyColumns" }

// Check implements device.Op.
func (a *CopyColumns) Check() error {
	var c checker
	c.sizes(a.T, a.C, a.DstStride, a.SrcStride)
	c.act("Dst", a.Dst, strided(a.T, a.DstStride, a.C))
	c.tensor("Src", a.Src, strided(a.T, a.SrcStride, a.C), a.Dst.DType)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *CopyColumns) Bytes() int64 { return 2 * int64(a.T) * int64(a.C) * a.Dst.DType.Size() }
