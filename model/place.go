package model

import "cmp"

// Place says where in a checkpoint the rows of a Stored lie, if they are part of a larger tensor or
// in another order. Zero: they are a tensor of their own.
type Place struct {
	Tensor string // the name of the tensor that holds the rows
	// Slice is the rows' index along the tensor's first dimension, which has Slices entries, one per expert. Slices 0:
	// the tensor has no such dimension and is itself the slice.
	Slice, Slices int
	Transposed    bool // the slice is stored as (columns, rows)
	// First, Run, Step and Rows say where the Stored's rows lie in a slice of Rows rows, which
	// other parameters share. They come in runs of Run rows, and runs begin Step rows apart: row r
	// of the Stored is row First + (r/Run)·Step + r%Run of the slice.
	First, Run, Step, Rows int
}

// Tensor returns the name of the checkpoint's tensor that holds the rows.
func (s Stored) Tensor() string { return cmp.Or(s.Place.Tensor, s.Name) }

// TensorShape returns the shape of the checkpoint's tensor that holds the rows p.Stored[i].
func (p Param) TensorShape(i int) []int64 {
	at := p.Stored[i].Place
	if at.Tensor == "" {
		return p.StoredShape(i)
	}
	shape := []int64{int64(at.Rows)}
	switch {
	case p.Dims > 1 && at.Transposed:
		shape = []int64{int64(p.Cols), int64(at.Rows)}
	case p.Dims > 1:
		shape = append(shape, int64(p.Cols))
	}
	if at.Slices > 0 {
		shape = append([]int64{int64(at.Slices)}, shape...)
	}
	return shape
}

// ElemAt returns the index, in the checkpoint's tensor, of element (row, col) of p.Stored[i].
func (p Param) ElemAt(i, row, col int) int64 {
	at, cols := p.Stored[i].Place, int64(p.Cols)
	if at.Tensor == "" {
		return int64(row)*cols + int64(col)
	}
	first := int64(at.Slice) * int64(at.Rows) * cols
	row = at.First + row/at.Run*at.Step + row%at.Run
	if at.Transposed {
		return first + int64(col)*int64(at.Rows) + int64(row)
	}
	return first + int64(row)*cols + int64(col)
}

// placed says how a family's checkpoints keep the tensors of one role, if they are not one (rows,
// columns) matrix each.
type placed struct {
	// tensor is the name, after "model.layers.N.", of the one tensor that holds all matrices of the role; "": each
	// matrix is a tensor.
	tensor     string
	experts    bool // the tensor's first dimension counts experts
	transposed bool // matrices are stored as (columns, rows)
	row        bool // a vector is stored as a matrix of one row
	woven      weave
}

// weave is the order in which one tensor of a checkpoint holds the rows of several parameters, such
// as gate and up.
type weave uint8

const (
	inTurn     weave = iota // all rows of the first, then all of the second
	byRows                  // one row of each, then the next row of each
	byHeads                 // one head of each, then the next head of each
	byKeyHeads              // for each key head of a gated delta net, the rows of all its heads, parameter by parameter
)

// run returns how many rows of one parameter lie together in the shared tensor. rows is the parameter's total number of
// rows.
func (w weave) run(rows int, c *Config) int {
	switch w {
	case byRows:
		return 1
	case byHeads:
		return c.HeadDim
	case byKeyHeads:
		return rows / c.GatedDeltaNet.KeyHeads
	}
	return rows
}

// place sets the Place of each tensor in stored by the family's places and returns stored. r is the role. If the role
// belongs to experts, e is the expert.
func (n blockNames) place(r Role, e int, stored []Stored) []Stored {
	if n.c.family == nil {
		return stored
	}
	how := n.c.family.places[r]
	joined := n.c.joined
	if n.block >= n.c.NumLayers {
		joined = n.c.aheadJoined
	}
	if joined {
		how = cmp.Or(n.c.family.joined[r], how)
	}
	if how == (placed{}) {
		return stored
	}
	if n.c.turned {
		how.transposed = !how.transposed
	}
	var first, step, rows int // of all that share the tensor
	for _, s := range stored {
		step += how.woven.run(s.Rows, n.c)
		rows += s.Rows
	}
	for i := range stored {
		s := &stored[i]
		s.Place = Place{Tensor: s.Name, Transposed: how.transposed, Run: s.Rows, Step: s.Rows, Rows: s.Rows}
		if how.tensor != "" {
			run := how.woven.run(s.Rows, n.c)
			s.Place = Place{Tensor: n.prefix() + how.tensor, Transposed: how.transposed, First: first, Run: run, Step: step, Rows: rows}
			first += run
		}
		if how.experts {
			s.Place.Slice, s.Place.Slices = e, n.c.NumExperts
		}
		if how.row {
			s.Place.Slices = 1
		}
	}
	return stored
}
