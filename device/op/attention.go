package op

import "mt/device"

// AttentionShape describes ragged sequences of queries and keys. Sequence i of Seqs has the queries CuQ[i]..CuQ[i+1]
// and the keys CuK[i]..CuK[i+1]. The last query of a sequence is at the position of its last key; with a key/value
// cache there are more keys than queries. A query attends to the keys up to its own position.
//
//	CuQ, CuK (Seqs+1) i32; in training the same tensor
//	MaxQ, MaxK: the longest sequence's queries, keys
//	TQ, TK: all queries, all keys
//	Heads query heads share KVHeads key/value heads: head h reads h / (Heads/KVHeads)
//	Window: the most keys that a query attends to, itself included; 0: all
//	Softcap: scaled scores become Softcap·tanh(score/Softcap); 0: they do not. Source: arXiv:2408.00118
type AttentionShape struct {
	CuQ, CuK           device.Tensor
	Seqs               int
	TQ, TK, MaxQ, MaxK int
	Heads, KVHeads     int
	Dim                int
	Scale              float32
	Window             int
	Softcap            float32
}

// Attention writes O and LSE: softmax(scale·QKᵀ)V over ragged sequences. It never holds all scores in memory. Source:
// arXiv:2205.14135, arXiv:2307.08691.
//
//	Q (TQ, Heads, Dim) act with row stride QStride; K, V (TK, KVHeads, Dim) act with row stride KStride
//	O (TQ, Heads·Dim) dense act
//	LSE (Heads, TQ) f32: log₂ Σ 2^(log₂e·score) over the keys that a query attends to, written unless none. A score is
//	Scale·q·k after the softcap; LSE is its log-sum-exp in bits, the natural one divided by ln 2
type Attention struct {
	AttentionShape
	O, LSE, Q, K, V  device.Tensor
	QStride, KStride int
}

// Name implements device.Op.
func (a *Attention) Name() string { return "Attention" }

// Check implements device.Op. The values of CuQ and CuK are not checked.
func (a *Attention) Check() error {
	var c checker
	c.attention(&a.AttentionShape)
	c.sizes(a.QStride, a.KStride)
	wide, narrow := a.heads()
	c.act("Q", a.Q, strided(a.TQ, a.QStride, wide))
	c.tensor("K", a.K, strided(a.TK, a.KStride, narrow), a.Q.DType)
	c.tensor("V", a.V, strided(a.TK, a.KStride, narrow), a.Q.DType)
	c.tensor("O", a.O, a.TQ*wide, a.Q.DType)
	c.optional("LSE", a.LSE, a.Heads*a.TQ, device.F32)
	return c.err
}

// Work implements Worker. It counts two matrix products.
func (a *Attention) Work() (shape string, flops float64) {
	shape, product := a.work()
	return shape, 2 * product
}

// AttentionBackward overwrites DQ, DK, DV. Attention or Sinks wrote LSE. A probability is 2^(log₂e·score − LSE).
//
//	DQ like Q with stride DQStride, DK and DV like K with DKStride, act
//	DO, O (TQ, Heads·Dim) dense act; Delta (Heads, TQ) f32 is overwritten with Σ DO·O for each query and head
//	Sums: none, or SumsLen f32 scratch for sums of DQ. With Sums a device may compute fewer products, and the last bits
//	of the result may differ
type AttentionBackward struct {
	AttentionShape
	DQ, DK, DV, DO, O, LSE, Q, K, V      device.Tensor
	QStride, KStride, DQStride, DKStride int
	Delta, Sums                          device.Tensor
}

// Name implements device.Op.
func (a *AttentionBackward) Name() string { return "AttentionBackward" }

// Check implements device.Op. The values of CuQ and CuK are not checked.
func (a *AttentionBackward) Check() error {
	var c checker
	c.attention(&a.AttentionShape)
	c.sizes(a.QStride, a.KStride, a.DQStride, a.DKStride)
	wide, narrow := a.heads()
	dt := a.Q.DType
	c.act("Q", a.Q, strided(a.TQ, a.QStride, wide))
	c.tensor("K", a.K, strided(a.TK, a.KStride, narrow), dt)
	c.tensor("V", a.V, strided(a.TK, a.KStride, narrow), dt)
	c.tensor("O", a.O, a.TQ*wide, dt)
	c.tensor("DO", a.DO, a.TQ*wide, dt)
	c.tensor("DQ", a.DQ, strided(a.TQ, a.DQStride, wide), dt)
	c.tensor("DK", a.DK, strided(a.TK, a.DKStride, narrow), dt)
	c.tensor("DV", a.DV, strided(a.TK, a.DKStride, narrow), dt)
	c.tensor("LSE", a.LSE, a.Heads*a.TQ, device.F32)
	c.tensor("Delta", a.Delta, a.Heads*a.TQ, device.F32)
	c.optional("Sums", a.Sums, a.SumsLen(), device.F32)
	return c.err
}

// Work implements Worker. It counts five matrix products, although a device may compute some of them twice.
func (a *AttentionBackward) Work() (shape string, flops float64) {
	shape, product := a.work()
	return shape, 5 * product
}

// heads returns two row lengths in elements: of dense queries, with all query heads, and of dense
// keys, with all key/value heads.
func (a *AttentionShape) heads() (wide, narrow int) { return a.Heads * a.Dim, a.KVHeads * a.Dim }

// attention checks the fields of AttentionShape, which the forward and the backward share.
func (c *checker) attention(a *AttentionShape) {
	c.sizes(a.Seqs, a.TQ, a.TK, a.MaxQ, a.MaxK, a.Heads, a.KVHeads, a.Dim, a.Window)
	c.softcap(a.Softcap)
	if a.KVHeads <= 0 || a.Heads%a.KVHeads != 0 {
		c.fail("%d heads do not share %d key heads evenly", a.Heads, a.KVHeads)
	}
	c.tensor("CuQ", a.CuQ, a.Seqs+1, device.I32)
	c.tensor("CuK", a.CuK, a.Seqs+1, device.I32)
}

// work returns a description of the shape, and the FLOPs of one of attention's matrix products. If
// all sequences are as long as the longest, the causal mask leaves half of the queries × keys
// rectangle. If lengths differ, or with a window, the FLOPs are unknown and 0.
func (a *AttentionShape) work() (shape string, product float64) {
	shape = a.shape().String()
	if a.TQ != a.Seqs*a.MaxQ || a.TK != a.TQ || a.Window != 0 {
		return shape, 0
	}
	return shape, float64(a.TQ) * float64(a.MaxK+1) * float64(a.Heads) * float64(a.Dim)
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *Attention) Bytes() int64 {
	wide, narrow := a.heads()
	return int64(2*a.TQ*wide+2*a.TK*narrow) * a.Q.DType.Size()
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *AttentionBackward) Bytes() int64 {
	wide, narrow := a.heads()
	return int64(4*a.TQ*wide+4*a.TK*narrow) * a.Q.DType.Size()
}

// Pairs estimates how many (query, key) pairs of each head the causal mask and the window leave. It takes every
// sequence to have the mean length.
func (a *AttentionShape) Pairs() float64 {
	if a.Seqs == 0 || a.TQ == 0 {
		return 0
	}
	queries, keys := float64(a.TQ)/float64(a.Seqs), float64(a.TK)/float64(a.Seqs)
	first := keys - queries // keys in front of the first query's own
	pairs := queries*first + queries*(queries+1)/2
	if w := float64(a.Window); w > 0 && w < keys {
		short := max(0, w-first-1) // queries that see fewer than w keys
		pairs = short*first + short*(short+1)/2 + (queries-short)*w
	}
	return float64(a.Seqs) * pairs
}
