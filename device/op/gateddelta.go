package op

import "mt/device"

// DeltaChunk is the number of tokens in a chunk of the gated delta rule.
const DeltaChunk = 64

// DeltaShape describes the sequences and heads of the gated delta rule. Each head has a state (KeyDim, ValueDim).
// Heads value heads share KeyHeads key heads: head h reads h / (Heads/KeyHeads). With ByChannel each row of a state has
// a decay of its own, and KeyHeads equals Heads.
//
//	Cu (Seqs+1) i32: the first token of each sequence, then the end of the last
type DeltaShape struct {
	Cu               device.Tensor
	Seqs, T          int
	KeyHeads, Heads  int
	KeyDim, ValueDim int
	GateStride       int
	ByChannel        bool
}

// Width returns how many columns a row of the tensor QKV has: q and k of all key heads and v of all heads.
func (a *DeltaShape) Width() int { return 2*a.KeyHeads*a.KeyDim + a.Heads*a.ValueDim }

// Decays returns how many decays a token has: one for each head or, with ByChannel, for each row of each head's state.
func (a *DeltaShape) Decays() int {
	if a.ByChannel {
		return a.Heads * a.KeyDim
	}
	return a.Heads
}

// gates returns how many elements of a row of the tensor Gates the rule uses.
func (a *DeltaShape) gates() int {
	if a.ByChannel {
		return a.Heads
	}
	return 2 * a.Heads
}

// StatesLen returns how many elements the tensor States has for T tokens.
func (a *DeltaShape) StatesLen() int {
	return (a.T + DeltaChunk - 1) / DeltaChunk * a.Heads * a.KeyDim * a.ValueDim
}

// GatedDelta writes O, with these inputs:
//
//	q, k scaled to length 1: x/√(Σx² + 1e-6); q also divided by √KeyDim
//	β = σ(b);  g = −e^ALog·log(1 + e^(a + DtBias))
//
// A head's state S is 0 where a sequence begins. Each token updates S:
//
//	S ← e^g·S;  S ← S + k·(β·(v − Sᵀk))ᵀ;  o = Sᵀq
//
// With ByChannel g is a vector, and row c of S decays by e^(g of c). Source: arXiv:2510.26692, section 3.
//
// Chunks of DeltaChunk tokens are computed at once: a linear system replaces the recurrence within a chunk. Source:
// arXiv:2412.06464, section 3; arXiv:2406.06484, section 3.
//
//	QKV (T, Width) act: q and k of all key heads, v of all heads
//	Gates act: b of head h of token t at t·GateStride + h, a behind the b of all heads
//	A: none without ByChannel, because Gates holds a. With ByChannel Gates holds b alone, and A is a: (T, Heads·KeyDim) act
//	ALog (Heads) f32; DtBias f32: one value per head, with ByChannel one per head and channel
//	O (T, Heads·ValueDim) act
//	States: none, or (⌈T/64⌉, Heads, KeyDim, ValueDim) f32. Element t/64 receives the state before the chunk that begins
//	at token t. The first chunk of a sequence writes no element
//	Last: none, or (Heads, KeyDim, ValueDim) f32 for a single sequence. On entry it holds the initial state, on return
//	the final state
type GatedDelta struct {
	DeltaShape
	O, QKV, Gates, A, ALog, DtBias, States, Last device.Tensor
}

// Name implements device.Op.
func (a *GatedDelta) Name() string { return "GatedDelta" }

// Check implements device.Op. The values of Cu are not checked.
func (a *GatedDelta) Check() error {
	var c checker
	c.delta(&a.DeltaShape, a.QKV, a.Gates, a.A, a.ALog, a.DtBias)
	c.tensor("O", a.O, a.T*a.Heads*a.ValueDim, a.QKV.DType)
	c.optional("States", a.States, a.StatesLen(), device.F32)
	c.optional("Last", a.Last, a.Heads*a.KeyDim*a.ValueDim, device.F32)
	c.single("Last", a.Last, a.Seqs)
	return c.err
}

// GatedDeltaBackward overwrites DQKV, DGates and DA, which have the layouts of QKV, Gates and A. It accumulates DALog
// (Heads) and DDtBias (Decays) f32, unless they are none. States are input as GatedDelta left them; their content
// afterwards is undefined. Every sequence starts with state 0.
type GatedDeltaBackward struct {
	DeltaShape
	DQKV, DGates, DA, DALog, DDtBias        device.Tensor
	DO, QKV, Gates, A, ALog, DtBias, States device.Tensor
}

// Name implements device.Op.
func (a *GatedDeltaBackward) Name() string { return "GatedDeltaBackward" }

// Check implements device.Op.
func (a *GatedDeltaBackward) Check() error {
	var c checker
	c.delta(&a.DeltaShape, a.QKV, a.Gates, a.A, a.ALog, a.DtBias)
	c.tensor("DQKV", a.DQKV, a.T*a.Width(), a.QKV.DType)
	c.tensor("DGates", a.DGates, strided(a.T, a.GateStride, a.gates()), a.QKV.DType)
	c.rates("DA", a.DA, &a.DeltaShape, a.QKV.DType)
	c.optional("DALog", a.DALog, a.Heads, device.F32)
	c.optional("DDtBias", a.DDtBias, a.Decays(), device.F32)
	c.tensor("DO", a.DO, a.T*a.Heads*a.ValueDim, a.QKV.DType)
	c.tensor("States", a.States, a.StatesLen(), device.F32)
	return c.err
}

// delta checks the arguments that the forward and the backward of the gated delta rule share.
func (c *checker) delta(a *DeltaShape, qkv, gates, rates, aLog, dtBias device.Tensor) {
	c.sizes(a.Seqs, a.T, a.KeyHeads, a.Heads, a.KeyDim, a.ValueDim, a.GateStride)
	if a.KeyHeads <= 0 || a.Heads%a.KeyHeads != 0 {
		c.fail("%d heads do not share %d key heads evenly", a.Heads, a.KeyHeads)
	}
	if a.ByChannel && a.KeyHeads != a.Heads {
		c.fail("%d key heads for %d heads, which decay by channel: want as many", a.KeyHeads, a.Heads)
	}
	if a.KeyDim > MostDeltaDim || a.ValueDim > MostDeltaDim {
		c.fail("a state is %d by %d: want at most %d", a.KeyDim, a.ValueDim, MostDeltaDim)
	}
	if a.Heads > MostDeltaHeads {
		c.fail("%d heads: at most %d", a.Heads, MostDeltaHeads)
	}
	c.act("QKV", qkv, a.T*a.Width())
	c.tensor("Gates", gates, strided(a.T, a.GateStride, a.gates()), qkv.DType)
	c.rates("A", rates, a, qkv.DType)
	c.tensor("ALog", aLog, a.Heads, device.F32)
	c.tensor("DtBias", dtBias, a.Decays(), device.F32)
	c.tensor("Cu", a.Cu, a.Seqs+1, device.I32)
}

// rates checks a tensor of the inputs a of channels, or of their gradient.
func (c *checker) rates(name string, t device.Tensor, a *DeltaShape, dt device.DType) {
	if a.ByChannel {
		c.tensor(name, t, a.T*a.Decays(), dt)
	}
}

// MostDeltaDim is the largest KeyDim or ValueDim of the gated delta rule, and MostDeltaHeads its largest Heads.
const MostDeltaDim, MostDeltaHeads = 128, 64

// Work implements Worker: the shape as text, and the FLOPs.
func (a *GatedDelta) Work() (shape string, flops float64) { return a.shape().String(), a.FLOPs() }

// Work implements Worker. It includes the recomputed part of the forward.
func (a *GatedDeltaBackward) Work() (shape string, flops float64) {
	return a.shape().String(), 3 * a.FLOPs()
}

// FLOPs counts the forward's work for full chunks, in products per token: three with the state (KeyDim, ValueDim),
// two with the chunk's keys and two with the chunk's values. The last four count only the triangle that the causal
// mask leaves.
func (a *DeltaShape) FLOPs() float64 {
	state, keys, values := float64(a.KeyDim*a.ValueDim), float64(DeltaChunk*a.KeyDim), float64(DeltaChunk*a.ValueDim)
	return float64(a.T) * float64(a.Heads) * (6*state + 2*keys + 2*values)
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *GatedDelta) Bytes() int64 {
	return int64(a.T*(a.Width()+a.Heads*(a.ValueDim+1)+a.Decays())) * a.QKV.DType.Size()
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *GatedDeltaBackward) Bytes() int64 {
	return int64(a.T*(2*a.Width()+a.Heads*(a.ValueDim+2)+2*a.Decays()))*a.QKV.DType.Size() + 4*int64(a.StatesLen())
}
