package op

import "mt/device"

// SelectKeys chooses, for each query, the TopK keys of its sequence with the largest scores, among the keys up to the
// query's own position. A query with at most TopK such keys gets all of them. If no query has more, Heads may be 0,
// and no score is computed.
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

// SparseShape describes attention to the keys that SelectKeys chose for each query. All heads read the same row of a key,
// whose first Values elements are its value, as in latent attention with absorbed projections. KVHeads is 1; there is
// no Window and no Softcap. Source: arXiv:2405.04434 (section 2.1), arXiv:2512.02556.
//
//	Dim: elements of a query's head and of a key's row; Values: of an output's head, at most Dim
//	Keys (TQ, TopK) i32 as SelectKeys writes it
type SparseShape struct {
	AttentionShape
	Values, TopK int
	Keys         device.Tensor
}

// SparseAttention writes O and LSE.
//
//	Q (TQ, Heads, Dim) act with row stride QStride; K (TK, Dim) act with row stride KStride
//	O (TQ, Heads·Values) dense act
//	LSE (Heads, TQ) f32: log-sum-exp of the scores to base 2, as of Attention, written unless none
type SparseAttention struct {
	SparseShape
	O, LSE, Q, K     device.Tensor
	QStride, KStride int
}

// Name implements device.Op.
func (a *SparseAttention) Name() string { return "SparseAttention" }

// Check implements device.Op. The values of CuQ, CuK and Keys are not checked.
func (a *SparseAttention) Check() error {
	var c checker
	c.sparse(&a.SparseShape, a.Q, a.K, a.O, a.QStride, a.KStride)
	c.optional("LSE", a.LSE, a.Heads*a.TQ, device.F32)
	return c.err
}

// Work implements Worker. It counts two matrix products of the chosen pairs.
func (a *SparseAttention) Work() (shape string, flops float64) {
	few := a.Chosen()
	return a.shape().String(), few.Pairs() * a.perPair(1, 1)
}

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (a *SparseAttention) MostWork() (Shape, device.DType, float64) {
	return a.shape(), a.Q.DType, a.gathered() * a.perPair(1, 1)
}

// Bytes implements Mover: the bytes of device memory that are read and written, if each query reads keys of its own.
func (a *SparseAttention) Bytes() int64 {
	return int64(a.TQ*a.Heads*(a.Dim+a.Values))*a.Q.DType.Size() + int64(a.gathered())*(int64(a.Dim)*a.Q.DType.Size()+4)
}

// SparseAttentionBackward overwrites DQ and DK. The gradient of a key's row is its gradient as a key and as a value.
//
//	DQ like Q with stride DQStride, DK like K with DKStride, act
//	DO, O (TQ, Heads·Values) dense act; Delta (Heads, TQ) f32 is overwritten with Σ DO·O for each query and head
//	Sums: SumsLen f32 scratch
type SparseAttentionBackward struct {
	SparseShape
	DQ, DK, DO, O, LSE, Q, K, Delta, Sums device.Tensor
	QStride, KStride, DQStride, DKStride  int
}

// Name implements device.Op.
func (a *SparseAttentionBackward) Name() string { return "SparseAttentionBackward" }

// Check implements device.Op. The values of CuQ, CuK and Keys are not checked.
func (a *SparseAttentionBackward) Check() error {
	var c checker
	c.sparse(&a.SparseShape, a.Q, a.K, a.O, a.QStride, a.KStride)
	c.sizes(a.DQStride, a.DKStride)
	c.tensor("DQ", a.DQ, strided(a.TQ, a.DQStride, a.Heads*a.Dim), a.Q.DType)
	c.tensor("DK", a.DK, strided(a.TK, a.DKStride, a.Dim), a.Q.DType)
	c.tensor("DO", a.DO, a.TQ*a.Heads*a.Values, a.Q.DType)
	c.tensor("LSE", a.LSE, a.Heads*a.TQ, device.F32)
	c.tensor("Delta", a.Delta, a.Heads*a.TQ, device.F32)
	c.tensor("Sums", a.Sums, a.SumsLen(), device.F32)
	return c.err
}

// Work implements Worker. It counts five matrix products of the chosen pairs, although a device may compute two twice.
func (a *SparseAttentionBackward) Work() (shape string, flops float64) {
	few := a.Chosen()
	return a.shape().String(), few.Pairs() * a.perPair(3, 2)
}

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (a *SparseAttentionBackward) MostWork() (Shape, device.DType, float64) {
	return a.shape(), a.Q.DType, a.gathered() * a.perPair(4, 3)
}

// Bytes implements Mover: the bytes of device memory that are read and written, if each query reads keys of its own and
// adds to their gradients in fp32.
func (a *SparseAttentionBackward) Bytes() int64 {
	size := a.Q.DType.Size()
	return int64(2*a.TQ*a.Heads*(a.Dim+a.Values))*size + int64(a.gathered())*(2*int64(a.Dim)*(size+4)+8)
}

// Ranges returns into how many ranges of queries SparseAttentionBackward divides its sums, whatever computes them.
func (a *SparseShape) Ranges() int {
	return max(1, min(mostRanges, 1+a.TQ/128, rangesLen/max(1, a.TK*a.Dim)))
}

// SumsLen returns how many f32 elements SparseAttentionBackward.Sums needs. Fewer queries or keys never need more.
func (a *SparseShape) SumsLen() int {
	return min(min(mostRanges, 1+a.TQ/128)*a.TK*a.Dim, max(a.TK*a.Dim, rangesLen))
}

// mostRanges and rangesLen limit the scratch memory SparseAttentionBackward.Sums: ranges of queries, and elements of all
// ranges, if one range takes no more. rangesLen has room for four ranges of 32,768 keys of 576.
const mostRanges, rangesLen = 4, 80 << 20

// Chosen returns the shape of attention with a window of as many keys, which has as many pairs.
func (a *SparseShape) Chosen() AttentionShape {
	few := a.AttentionShape
	few.Window = a.TopK
	return few
}

// gathered returns the most pairs of a query and a key.
func (a *SparseShape) gathered() float64 { return float64(a.TQ) * float64(min(a.TopK, a.MaxK)) }

// perPair returns the FLOPs of a pair in all heads: of products over Dim and over Values.
func (a *SparseShape) perPair(dims, values int) float64 {
	return 2 * float64(a.Heads) * float64(dims*a.Dim+values*a.Values)
}

func (c *checker) sparse(a *SparseShape, q, k, o device.Tensor, qStride, kStride int) {
	c.attention(&a.AttentionShape)
	c.sizes(a.TopK, a.Values, qStride, kStride)
	if a.Window != 0 || a.Softcap != 0 || a.KVHeads != 1 || a.Values > a.Dim {
		c.fail("sparse attention with window %d, softcap %v, %d key heads and %d values of %d elements: want no window, no softcap, 1 key head and at most as many values",
			a.Window, a.Softcap, a.KVHeads, a.Values, a.Dim)
	}
	c.act("Q", q, strided(a.TQ, qStride, a.Heads*a.Dim))
	c.tensor("K", k, strided(a.TK, kStride, a.Dim), q.DType)
	c.tensor("O", o, a.TQ*a.Heads*a.Values, q.DType)
	c.tensor("Keys", a.Keys, a.TQ*a.TopK, device.I32)
}
