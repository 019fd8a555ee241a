package op

import (
	"math"

	"mt/device"
)

// Noise is what training adds to embeddings: NEFTune, arXiv:2310.05914. The zero value adds nothing.
//
//	Alpha: a document of L tokens gets numbers between ±Alpha/√(L·hidden)
//	Seed: what they are drawn by, with the step and the place in it
type Noise struct {
	Alpha float32
	Seed  uint64
}

// AddNoise adds Scale/√L·u to every element of X (T, C) act, in place, where L is how many tokens
// the row's document has.
//
//	X: rows From, From+1, … of a micro-batch that begins with token First of the step
//	Cu (Seqs+1) i32: the first token of each of the micro-batch's documents, then the end of the last
//
// u is spread evenly over −1 to 1, which it never is: (2r+1)/2²⁴ − 1 for the upper 24 bits r of a word of Philox4x32-10
// (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011). That of column c is word c mod 4 of the counter
// (⌊c/4⌋, First+From+row, Step, 0) and the key (low, high half of Seed). So u depends on nothing but the seed, the step and the
// place in it, and what is added has the same bits on every device.
type AddNoise struct {
	X, Cu                         device.Tensor
	T, C, Seqs, From, First, Step int
	Seed                          uint64
	Scale                         float32
}

// Name implements device.Op.
func (a *AddNoise) Name() string { return "AddNoise" }

// Check implements device.Op. The values of Cu are not checked.
func (a *AddNoise) Check() error {
	var c checker
	c.sizes(a.T, a.C, a.Seqs, a.From, a.First, a.Step)
	c.act("X", a.X, a.T*a.C)
	c.tensor("Cu", a.Cu, a.Seqs+1, device.I32)
	if end := a.First + a.From + a.T; end > math.MaxInt32 || a.Step > math.MaxInt32 {
		c.fail("token %d of step %d: want less than 2³¹ of both", end, a.Step)
	}
	return c.err
}

// Bytes implements Mover.
func (a *AddNoise) Bytes() int64 { return 2 * int64(a.T*a.C) * a.X.DType.Size() }
