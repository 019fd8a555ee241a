package model

import "cmp"

// Place is where a checkpoint has rows of a parameter that are not a tensor of their own, or lie in it
// otherwise than the engine has them. Its zero value says that they are a tensor of their own.
type Place struct {
	Tensor string // the name of the tensor that they are in
	// Slice is where they are along the tensor's first dimension, which has Slices; where Slices is 0 there is no
	// such dimension, and what is said of a slice is said of the tensor.
	Slice, Slices int
	Transposed    bool // the slice is (columns, rows)
	// The slice has Rows rows of this parameter and of others. Row r of these here is its row
	// First + r/Run·Step + r%Run: a run of so many of these, and then as many of others as make up a step.
	First, Run, Step, Rows int
}

// Tensor is the name of the checkpoint's tensor that has the rows.
func (s Stored) Tensor() string { return cmp.Or(s.Place.Tensor, s.Name) }

// TensorShape is the shape of the checkpoint's tensor that has rows i of p.Stored.
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

// ElemAt is which element of the checkpoint's tensor has column col of row row, counted from the first, of
// rows i of p.Stored.
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

// placed is how a family's checkpoints have the tensors of a role where they are not matrices (rows, columns) of their own.
type placed struct {
	// tensor is the name, after "model.layers.N.", of the one that holds all of them; empty: each is by itself.
	tensor     string
	experts    bool // its first dimension counts experts
	transposed bool // matrices are (columns, rows)
	row        bool // a vector is a matrix of one row
	woven      weave
}

// weave is how the rows of several that share a tensor follow each other.
type weave uint8

const (
	inTurn     weave = iota // all of the first, then all of the second
	byRows                  // a row of each, then the next of each
	byHeads                 // the rows of a head of each, then those of the next
	byKeyHeads              // of each the rows of the heads that share a recurrence's first key head, then those of the next
)

// run is how many rows of one follow each other that has rows of them.
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

// place puts the tensors of a role, of expert e where there are experts, where the family's checkpoints have them.
func (n blockNames) place(r Role, e int, stored []Stored) []Stored {
	if n.c.family == nil || n.c.family.places[r] == (placed{}) {
		return stored
	}
	how := n.c.family.places[r]
	if n.c.turned {
		how.transposed = !how.transposed
	}
	var first, step, rows int // of what shares a tensor
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
