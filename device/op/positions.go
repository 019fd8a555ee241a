package op

import "mt/device"

// AddPositions writes Y (T, C) act = X (T, C) + Table row Pos[t]: learned position embeddings. Y may be X.
//
//	Table (P, C) act, P given by its length; Pos (T) i32
type AddPositions struct {
	Y, X, Table, Pos device.Tensor
	T, C             int
}

// Name implements device.Op.
func (a *AddPositions) Name() string { return "AddPositions" }

// Check implements device.Op.
func (a *AddPositions) Check() error {
	var c checker
	c.sizes(a.T, a.C)
	c.act("X", a.X, a.T*a.C)
	c.tensor("Y", a.Y, a.T*a.C, a.X.DType)
	c.tensor("Table", a.Table, min(a.T, 1)*a.C, a.X.DType)
	c.tensor("Pos", a.Pos, a.T, device.I32)
	return c.err
}

// AddPositionsBackward accumulates the gradient of AddPositions' table. Row p sums the DY of position p over the
// sequences, in their order.
//
//	DTable (P, C) f32; DY (T, C) act: tokens From, From+1, … of the micro-batch
//	Cu (Seqs+1) i32: the first token of each sequence, then the end of the last
//	Longest: at least the positions of the longest sequence, at most P
type AddPositionsBackward struct {
	DTable, DY, Cu            device.Tensor
	Seqs, Longest, From, T, C int
}

// Name implements device.Op.
func (a *AddPositionsBackward) Name() string { return "AddPositionsBackward" }

// Check implements device.Op.
func (a *AddPositionsBackward) Check() error {
	var c checker
	c.sizes(a.Seqs, a.Longest, a.From, a.T, a.C)
	c.act("DY", a.DY, a.T*a.C)
	c.tensor("DTable", a.DTable, a.Longest*a.C, device.F32)
	c.tensor("Cu", a.Cu, a.Seqs+1, device.I32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *AddPositions) Bytes() int64 { return 3 * int64(a.T*a.C) * a.X.DType.Size() }

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *AddPositionsBackward) Bytes() int64 {
	return int64(a.T*a.C)*a.DY.DType.Size() + 8*int64(a.Longest*a.C)
}
