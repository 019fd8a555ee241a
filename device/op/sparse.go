package op

import "mt/device"

// SelectKeys chooses, for each query, the TopK keys of its sequence with the largest scores, among the keys up to the
// query's own position. A query with at most TopK such keys gets all of them.
//
//	score = Σ_h WScale·W[h]·max(0, Scale·Q[h]·K)
//
// Scores at the limit may be equal: they are 0 if no head's product is positive. The choice among them is that of
// torch.topk on a CPU, which calls std::nth_element and, for few keys of many, std::partial_sort of the GNU C++
// library. Source: arXiv:2512.02556 (DeepSeek-V3.2, section 2.1).
//
//	Q (TQ, Heads, Dim), K (TK, Dim), W (TQ, Heads) act
//	Keys (TQ, TopK) i32: the chosen keys, counted from the sequence's first key, in ascending order; −1 after the last
//	CuQ, CuK, Seqs as in AttentionShape; MaxK: the longest sequence's keys
type SelectKeys struct {
	Keys, Q, K, W, CuQ, CuK              device.Tensor
	Seqs, TQ, TK, MaxK, Heads, Dim, TopK int
	Scale, WScale                        float32
}

// Name implements device.Op.
func (a *SelectKeys) Name() string { return "SelectKeys" }

// Check implements device.Op. The values of CuQ and CuK are not checked.
func (a *SelectKeys) Check() error {
	var c checker
	c.sizes(a.Seqs, a.TQ, a.TK, a.MaxK, a.Heads, a.Dim, a.TopK)
	c.act("Q", a.Q, a.TQ*a.Heads*a.Dim)
	c.tensor("K", a.K, a.TK*a.Dim, a.Q.DType)
	c.tensor("W", a.W, a.TQ*a.Heads, a.Q.DType)
	c.tensor("Keys", a.Keys, a.TQ*a.TopK, device.I32)
	c.tensor("CuQ", a.CuQ, a.Seqs+1, device.I32)
	c.tensor("CuK", a.CuK, a.Seqs+1, device.I32)
	return c.err
}

// Work implements Worker. It counts the products of queries and keys.
func (a *SelectKeys) Work() (shape string, flops float64) {
	s := a.attention()
	return s.shape().String(), 2 * s.Pairs() * float64(a.Heads) * float64(a.Dim)
}

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (a *SelectKeys) MostWork() (Shape, device.DType, float64) {
	s := a.attention()
	return s.shape(), a.Q.DType, s.most()
}

// attention returns the shape of attention with as many scores.
func (a *SelectKeys) attention() *AttentionShape {
	return &AttentionShape{Seqs: a.Seqs, TQ: a.TQ, TK: a.TK, MaxQ: a.MaxK, MaxK: a.MaxK, Heads: a.Heads, KVHeads: 1, Dim: a.Dim}
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *SelectKeys) Bytes() int64 {
	return int64(a.TQ*a.Heads*(a.Dim+1)+a.TK*a.Dim)*a.Q.DType.Size() + 4*int64(a.TQ*a.TopK)
}

// SparseAttention is Attention in which a query attends to the keys that SelectKeys chose for it, the same ones in
// all heads. The shape has no Window and no Softcap. A device may compute the products of all pairs, so MostWork is
// Attention's.
//
//	Keys (TQ, TopK) i32 as SelectKeys writes it
type SparseAttention struct {
	Attention
	Keys device.Tensor
	TopK int
}

// Name implements device.Op.
func (a *SparseAttention) Name() string { return "SparseAttention" }

// Check implements device.Op. The values of CuQ, CuK and Keys are not checked.
func (a *SparseAttention) Check() error {
	var c checker
	c.sparse(&a.AttentionShape, a.Keys, a.TopK)
	if c.err == nil {
		c.err = a.Attention.Check()
	}
	return c.err
}

// Work implements Worker. It counts two matrix products of the chosen pairs.
func (a *SparseAttention) Work() (shape string, flops float64) {
	few := a.Chosen()
	return a.shape().String(), 4 * few.Pairs() * float64(a.Heads) * float64(a.Dim)
}

// Chosen returns the shape of attention with a window of as many keys, which has as many pairs.
func (a *SparseAttention) Chosen() AttentionShape { return a.chosen(a.TopK) }

// Bytes implements Mover: the bytes of device memory that are read and written, if each query reads keys of its own.
func (a *SparseAttention) Bytes() int64 {
	wide, _ := a.heads()
	return int64(2*a.TQ*wide*(1+min(a.TopK, a.MaxK))) * a.Q.DType.Size()
}

// SparseAttentionBackward is AttentionBackward of SparseAttention. It has no Sums.
type SparseAttentionBackward struct {
	AttentionBackward
	Keys device.Tensor
	TopK int
}

// Name implements device.Op.
func (a *SparseAttentionBackward) Name() string { return "SparseAttentionBackward" }

// Check implements device.Op. The values of CuQ, CuK and Keys are not checked.
func (a *SparseAttentionBackward) Check() error {
	var c checker
	c.sparse(&a.AttentionShape, a.Keys, a.TopK)
	if !a.Sums.None() {
		c.fail("Sums is given: sparse attention has no memory for sums")
	}
	if c.err == nil {
		c.err = a.AttentionBackward.Check()
	}
	return c.err
}

// Work implements Worker. It counts five matrix products of the chosen pairs.
func (a *SparseAttentionBackward) Work() (shape string, flops float64) {
	few := a.Chosen()
	return a.shape().String(), 10 * few.Pairs() * float64(a.Heads) * float64(a.Dim)
}

// Chosen returns the shape of attention with a window of as many keys, which has as many pairs.
func (a *SparseAttentionBackward) Chosen() AttentionShape { return a.chosen(a.TopK) }

// Bytes implements Mover: the bytes of device memory that are read and written, if each query reads keys of its own and
// adds to their gradients.
func (a *SparseAttentionBackward) Bytes() int64 {
	wide, _ := a.heads()
	return int64(4*a.TQ*wide*(1+min(a.TopK, a.MaxK))) * a.Q.DType.Size()
}

func (c *checker) sparse(a *AttentionShape, keys device.Tensor, topK int) {
	c.sizes(topK)
	if a.Window != 0 || a.Softcap != 0 {
		c.fail("sparse attention with window %d and softcap %v: want neither", a.Window, a.Softcap)
	}
	c.tensor("Keys", keys, a.TQ*topK, device.I32)
}

func (a *AttentionShape) chosen(topK int) AttentionShape {
	few := *a
	few.Window = topK
	return few
}
