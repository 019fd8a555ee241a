package op

import (
	"math"

	"mt/device"
)

// Noise is NEFTune's noise on embeddings during training, arXiv:2310.05914. The zero value adds nothing.
//
//	Alpha: noise is between ±Alpha/√(L·hidden) in a document of L tokens
//
// Seed: together with the number of the training step and the token's position in the step's batch, it determines the
// noise
type Noise struct {
	Alpha float32
	Seed  uint64
}

// AddNoise adds Scale/√L·u to every element of X (T, C) act, in place. L is the number of tokens of the row's
// document.
//
//	X: rows From, From+1, … of a micro-batch that begins with token First of the step
//	Cu (Seqs+1) i32: the first token of each of the micro-batch's documents, then the end of the last
//
// u is uniform in (−1, 1): (2r+1)/2²⁴ − 1 for the upper 24 bits r of a word of Philox4x32-10 (Salmon et al., Parallel
// random numbers: as easy as 1, 2, 3, SC 2011). Column c uses word c mod 4 of the counter (⌊c/4⌋, First+From+row,
// Step, 0) and the key (low, high half of Seed). So u depends only on the seed, the step and the position in the
// step, and has the same bits on every device.
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

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *AddNoise) Bytes() int64 { return 2 * int64(a.T*a.C) * a.X.DType.Size() }
