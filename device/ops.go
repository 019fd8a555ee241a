package device

import "fmt"

// Ops are the operations that layers are made of. Every method enqueues on s
// and returns; tensors must outlive an event recorded after it. Errors stick
// to the stream (Stream.Err).
//
// Conventions. All tensors are dense and row-major unless a stride says
// otherwise. "act" is the compute dtype (fp32 or bf16) of activations and of
// weights with two dimensions; norms' weights and biases are fp32. Sums,
// norms, softmax and losses are computed in fp32 and rounded once, when
// stored. The gradient rule: gradients of parameters ACCUMULATE in fp32,
// gradients of activations OVERWRITE, unless a field says otherwise. Every
// reduction has a partition fixed by the shapes alone: the same bits for any
// number of threads.
type Ops interface {
	// MatMul is D = op(A)·op(B) [+ C] [+ Bias].
	MatMul(s Stream, m MatMul)
	// AddBiasGrad accumulates db (N) f32 += Σ_t dy (T, N) act.
	AddBiasGrad(s Stream, db, dy Tensor, T, N int)

	// RMSNorm writes Y and RStd. Source: arXiv:1910.07467.
	RMSNorm(s Stream, a RMSNorm)
	// RMSNormBackward writes DX (or adds to it) and accumulates DW.
	RMSNormBackward(s Stream, a RMSNormBackward)
	// RoPE rotates heads in place. Source: arXiv:2104.09864, in the half-split
	// layout of Hugging Face (element i pairs with i + D/2).
	RoPE(s Stream, a RoPE)

	// Attention writes O and LSE: softmax(scale·QKᵀ)V over ragged sequences,
	// never materialising scores. Source: arXiv:2205.14135, arXiv:2307.08691.
	Attention(s Stream, a Attention)
	// AttentionBackward overwrites DQ, DK, DV.
	AttentionBackward(s Stream, a AttentionBackward)

	// GLU writes y (T, F) act = f(gate)·up where gu (T, 2F) act holds a row's
	// gate, then its up. Source: arXiv:2002.05202.
	GLU(s Stream, f Activation, y, gu Tensor, T, F int)
	// GLUBackward overwrites dgu (T, 2F) act from dy (T, F) and gu; dgu may be
	// gu. If y is not none it is written too, as GLU would; y may be dy.
	GLUBackward(s Stream, f Activation, dgu, y, dy, gu Tensor, T, F int)
	// Scale multiplies x (n) act by factor in place, rounding once.
	Scale(s Stream, x Tensor, n int64, factor float32)

	// GatherRows writes dst (T, C) = src (U, C) rows index (T) i32; dst and src
	// act.
	GatherRows(s Stream, dst, src, index Tensor, T, C int)
	// ScatterAddRows accumulates drows (U, C) f32: row u += Σ dy (T, C) act rows
	// pos[start[u]:start[u+1]], in that order. start (U+1) i32, pos (T) i32.
	ScatterAddRows(s Stream, drows, dy, start, pos Tensor, U, T, C int)

	// ScaleRows multiplies row t of X (T, C) act by W[Index[t]], in place.
	ScaleRows(s Stream, a ScaleRows)
	// ScaleRowsBackward writes the gradient of the weights and scales both Y and
	// its gradient.
	ScaleRowsBackward(s Stream, a ScaleRowsBackward)
	// AddRows adds row t of src (T, C) act to row index[t] of dst (U, C) f32; no
	// index comes twice.
	AddRows(s Stream, dst, src, index Tensor, U, T, C int)

	// Router chooses the experts of every token: those with the K largest logits
	// (ties: the lower index first), weighted by the softmax over all. Source:
	// arXiv:2101.03961, arXiv:2505.09388.
	Router(s Stream, a Router)
	// RouterBackward overwrites DLogits; what is chosen counts as fixed.
	RouterBackward(s Stream, a RouterBackward)
	// SortByExpert lists the pairs (token, choice) by expert.
	SortByExpert(s Stream, a SortByExpert)

	// CrossEntropy computes losses and, unless ForwardOnly, turns logits into
	// their gradient in place.
	CrossEntropy(s Stream, a CrossEntropy)
	// CrossEntropyShard is CrossEntropy where the vocabulary comes in shards, one
	// after the other, in two sweeps.
	CrossEntropyShard(s Stream, a CrossEntropyShard)

	// Convert writes dst (n) = src (n) with dst's dtype (bf16: nearest even).
	Convert(s Stream, dst, src Tensor, n int64)
}

// MatMul holds the arguments of Ops.MatMul.
//
//	A (M, K), or (K, M) with TransA; B (K, N), or (N, K) with TransB
//	D (M, N); C none or (M, N) of D's dtype, may be D itself (accumulate)
//	Bias none or (N) f32
//	Ragged: M (with TransA: K) comes from the data, as the number of an expert's
//	tokens does; a device that picks algorithms by shape then picks one per power
//	of two of it
//
// A and B have the same dtype (F32 or BF16), D is F32 or BF16. Products and
// sums are fp32; D is rounded once after C and Bias were added.
type MatMul struct {
	M, N, K        int
	TransA, TransB bool
	A, B, C, D     Tensor
	Bias           Tensor
	Ragged         bool
}

// RMSNorm holds the arguments of Ops.RMSNorm: for each of Rows rows and each of
// Groups groups, y = x · rstd · (Offset + w) over Dim elements with rstd =
// 1/√(mean(x²) + Eps). Groups is 1 for a hidden state and the number of heads
// for q/k norm.
//
//	X, Y act: element (r, g, c) at r·XStride + g·Dim + c (elements); Y may be X
//	W (Dim) f32; RStd (Rows, Groups) f32, written unless none
//	Residual: none, or act that lies as Y does: Y = Residual + norm, rounded
//	once. It may be Y, but not X; its gradient is DY
type RMSNorm struct {
	Y, RStd, X, W     Tensor
	Residual          Tensor
	Rows, Groups, Dim int
	XStride, YStride  int
	Eps, Offset       float32
}

// RMSNormBackward holds the arguments of Ops.RMSNormBackward.
//
//	X as in the forward; DY, DX act with strides of their own; DX may be DY
//	W (Dim) f32, with Offset as in the forward; DW (Dim) f32 accumulates; RStd
//	(Rows, Groups) f32
//	Add: DX += gradient (one rounding) instead of DX = gradient; then DX is not DY
type RMSNormBackward struct {
	DX, DW, DY, X, W, RStd      Tensor
	Rows, Groups, Dim           int
	DXStride, DYStride, XStride int
	Offset                      float32
	Add                         bool
}

// RoPE holds the arguments of Ops.RoPE. Heads×Dim elements of each row are
// rotated in place; of a head the first Rotary elements take part.
//
//	X act: element (t, head, c) at t·Stride + head·Dim + c
//	Cos, Sin (P, Rotary/2) f32 tables; Pos (T) i32, each < P
//	Inverse rotates back: the gradient of the rotation
type RoPE struct {
	X, Cos, Sin, Pos              Tensor
	T, Heads, Dim, Rotary, Stride int
	Inverse                       bool
}

// Activation is the function of a gated linear unit's gate.
type Activation uint8

// The activations.
const (
	SiLU     Activation = iota // x/(1+e^−x)
	GELUTanh                   // ½x(1+tanh(√(2/π)(x+0.044715x³))). Source: arXiv:1606.08415
)

func (f Activation) String() string {
	switch f {
	case SiLU:
		return "silu"
	case GELUTanh:
		return "gelu_tanh"
	}
	return fmt.Sprintf("Activation(%d)", uint8(f))
}

// AttentionShape says how queries and keys lie. Sequence i of Seqs has queries
// CuQ[i]..CuQ[i+1] and keys CuK[i]..CuK[i+1]; the last query of a sequence
// stands at its last key (a key/value cache has more keys than queries), and a
// query sees keys at or before its own place.
//
//	CuQ, CuK (Seqs+1) i32; in training the same tensor
//	MaxQ, MaxK: the longest sequence's queries, keys
//	TQ, TK: queries and keys in all
//	Heads query heads share KVHeads key heads: head h reads h / (Heads/KVHeads)
//	Window: 0, or how many keys a query sees at most, itself included
//	Softcap: 0, or scaled scores become Softcap·tanh(score/Softcap). Source:
//	arXiv:2408.00118
type AttentionShape struct {
	CuQ, CuK           Tensor
	Seqs               int
	TQ, TK, MaxQ, MaxK int
	Heads, KVHeads     int
	Dim                int
	Scale              float32
	Window             int
	Softcap            float32
}

// Attention holds the arguments of Ops.Attention.
//
//	Q (TQ, Heads, Dim) with QStride elements from row to row; K, V (TK,
//	KVHeads, Dim) with KStride; act. O (TQ, Heads·Dim) dense act
//	LSE (Heads, TQ) f32: log-sum-exp of the scores, written unless none
type Attention struct {
	AttentionShape
	O, LSE, Q, K, V  Tensor
	QStride, KStride int
}

// AttentionBackward holds the arguments of Ops.AttentionBackward.
//
//	DQ like Q with stride DQStride, DK and DV like K with DKStride, act
//	DO, O (TQ, Heads·Dim) dense act; Delta (Heads, TQ) f32 scratch
type AttentionBackward struct {
	AttentionShape
	DQ, DK, DV, DO, O, LSE, Q, K, V      Tensor
	QStride, KStride, DQStride, DKStride int
	Delta                                Tensor
}

// IgnoreIndex is the target that takes no part in the loss.
const IgnoreIndex = -100

// CrossEntropy holds the arguments of Ops.CrossEntropy.
//
//	Logits (T, V) act, overwritten by (softmax − onehot)·Scale unless
//	ForwardOnly (rows whose target is IgnoreIndex become 0)
//	Targets (T) i32; Losses (T) f32 overwritten: −log p(target), unscaled,
//	0 for IgnoreIndex
//	Softcap: 0, or the logits become Softcap·tanh(logit/Softcap) first; the
//	gradient is that of the logits as they were
type CrossEntropy struct {
	Logits, Targets, Losses Tensor
	T, V                    int
	Scale, Softcap          float32
	ForwardOnly             bool
}

// CrossEntropyShard holds the arguments of Ops.CrossEntropyShard: the columns
// From … From+V of the vocabulary.
//
//	Logits (T, V) act; Targets (T) i32, of the whole vocabulary
//	LSE (T) f32: log-sum-exp of the logits so far; Losses (T) f32
//	Softcap as for CrossEntropy
//
// In the sweep without Gradient logits are only read: LSE takes in the shard
// (First: starts from it alone), Losses keeps the logit of the target once its
// shard has come and with Last becomes −log p(target), unscaled, 0 for
// IgnoreIndex. The sweep with Gradient reads the complete LSE, leaves it and
// Losses alone, and overwrites Logits by (softmax − onehot)·Scale, rows whose
// target is IgnoreIndex by 0.
type CrossEntropyShard struct {
	Logits, Targets, LSE, Losses Tensor
	T, V, From                   int
	Scale, Softcap               float32
	First, Last, Gradient        bool
}
