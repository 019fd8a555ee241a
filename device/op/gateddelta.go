package op

import "mt/device"

// DeltaChunk is how many tokens the gated delta rule takes at a time.
const DeltaChunk = 64

// DeltaShape is what the gated delta rule goes over: sequences, and heads that each have a state (KeyDim, ValueDim).
// Heads value heads share KeyHeads key heads: head h reads h / (Heads/KeyHeads).
//
//	Cu (Seqs+1) i32: the first token of each sequence, then the end of the last
type DeltaShape struct {
	Cu               device.Tensor
	Seqs, T          int
	KeyHeads, Heads  int
	KeyDim, ValueDim int
	GateStride       int
}

// Width is the number of columns of a row of q, k and v.
func (a *DeltaShape) Width() int { return 2*a.KeyHeads*a.KeyDim + a.Heads*a.ValueDim }

// StatesLen is how many elements States has for T tokens.
func (a *DeltaShape) StatesLen() int {
	return (a.T + DeltaChunk - 1) / DeltaChunk * a.Heads * a.KeyDim * a.ValueDim
}

// GatedDelta writes O. With q and k of length 1 (x/√(Σx² + 1e-6)), q over √KeyDim besides, β = σ(b), and g =
// −e^ALog·log(1 + e^(a + DtBias)), a head's state S, which is 0 where a sequence begins, goes from token to token as
//
//	S ← e^g·S;  S ← S + k·(β·(v − Sᵀk))ᵀ;  o = Sᵀq
//
// It is computed by chunks of DeltaChunk tokens, for which a system of equations stands in the place of the recurrence.
// Source: arXiv:2412.06464, section 3; arXiv:2406.06484, section 3.
//
//	QKV (T, Width) act: q and k of all key heads, v of all heads
//	Gates act: b of head h of token t at t·GateStride + h, a behind those of all heads
//	ALog, DtBias (Heads) f32; O (T, Heads·ValueDim) act
//	States: none, or (⌈T/64⌉, Heads, KeyDim, ValueDim) f32: the state before a chunk that begins at token t, and is not
//	the first of its sequence, in place t/64; the others are left as they are
//	Last: none, or (Heads, KeyDim, ValueDim) f32 of the only sequence: the state before its first token here, and
//	afterwards that behind its last
type GatedDelta struct {
	DeltaShape
	O, QKV, Gates, ALog, DtBias, States, Last device.Tensor
}

// Name implements device.Op.
func (a *GatedDelta) Name() string { return "GatedDelta" }

// Check implements device.Op. The values of Cu are not checked.
func (a *GatedDelta) Check() error {
	var c checker
	c.delta(&a.DeltaShape, a.QKV, a.Gates, a.ALog, a.DtBias)
	c.tensor("O", a.O, a.T*a.Heads*a.ValueDim, a.QKV.DType)
	c.optional("States", a.States, a.StatesLen(), device.F32)
	c.optional("Last", a.Last, a.Heads*a.KeyDim*a.ValueDim, device.F32)
	c.single("Last", a.Last, a.Seqs)
	return c.err
}

// GatedDeltaBackward overwrites DQKV and DGates, which lie as QKV and Gates do, and accumulates DALog and DDtBias (Heads)
// f32, unless they are none. States are as GatedDelta left them, and then hold anything. The sequences' states begin as 0.
type GatedDeltaBackward struct {
	DeltaShape
	DQKV, DGates, DALog, DDtBias         device.Tensor
	DO, QKV, Gates, ALog, DtBias, States device.Tensor
}

// Name implements device.Op.
func (a *GatedDeltaBackward) Name() string { return "GatedDeltaBackward" }

// Check implements device.Op.
func (a *GatedDeltaBackward) Check() error {
	var c checker
	c.delta(&a.DeltaShape, a.QKV, a.Gates, a.ALog, a.DtBias)
	c.tensor("DQKV", a.DQKV, a.T*a.Width(), a.QKV.DType)
	c.tensor("DGates", a.DGates, strided(a.T, a.GateStride, 2*a.Heads), a.QKV.DType)
	c.optional("DALog", a.DALog, a.Heads, device.F32)
	c.optional("DDtBias", a.DDtBias, a.Heads, device.F32)
	c.tensor("DO", a.DO, a.T*a.Heads*a.ValueDim, a.QKV.DType)
	c.tensor("States", a.States, a.StatesLen(), device.F32)
	return c.err
}

// delta checks what the forward and the backward both read.
func (c *checker) delta(a *DeltaShape, qkv, gates, aLog, dtBias device.Tensor) {
	c.sizes(a.Seqs, a.T, a.KeyHeads, a.Heads, a.KeyDim, a.ValueDim, a.GateStride)
	if a.KeyHeads <= 0 || a.Heads%a.KeyHeads != 0 {
		c.fail("%d heads do not share %d key heads evenly", a.Heads, a.KeyHeads)
	}
	if a.KeyDim > MostDeltaDim || a.ValueDim > MostDeltaDim {
		c.fail("a state is %d by %d: want at most %d", a.KeyDim, a.ValueDim, MostDeltaDim)
	}
	if a.Heads > MostDeltaHeads {
		c.fail("%d heads: at most %d", a.Heads, MostDeltaHeads)
	}
	c.act("QKV", qkv, a.T*a.Width())
	c.tensor("Gates", gates, strided(a.T, a.GateStride, 2*a.Heads), qkv.DType)
	c.tensor("ALog", aLog, a.Heads, device.F32)
	c.tensor("DtBias", dtBias, a.Heads, device.F32)
	c.tensor("Cu", a.Cu, a.Seqs+1, device.I32)
}

// MostDeltaDim is how many elements a key or a value of the gated delta rule has at most, MostDeltaHeads how many heads there
// are.
const MostDeltaDim, MostDeltaHeads = 128, 64

// Work implements Worker.
func (a *GatedDelta) Work() (shape string, flops float64) { return a.shape().String(), a.FLOPs() }

// Work implements Worker. What is computed again of the forward is in it.
func (a *GatedDeltaBackward) Work() (shape string, flops float64) {
	return a.shape().String(), 3 * a.FLOPs()
}

// FLOPs is the work of the forward where chunks are full: three products of a token with the state, two of a chunk's
// keys, and two of its rows with its values, of which a triangle counts.
func (a *DeltaShape) FLOPs() float64 {
	state, keys, values := float64(a.KeyDim*a.ValueDim), float64(DeltaChunk*a.KeyDim), float64(DeltaChunk*a.ValueDim)
	return float64(a.T) * float64(a.Heads) * (6*state + 2*keys + 2*values)
}

// Bytes implements Mover.
func (a *GatedDelta) Bytes() int64 {
	return int64(a.T*(a.Width()+a.Heads*(a.ValueDim+2))) * a.QKV.DType.Size()
}

// Bytes implements Mover.
func (a *GatedDeltaBackward) Bytes() int64 {
	return int64(a.T*(2*a.Width()+a.Heads*(a.ValueDim+4)))*a.QKV.DType.Size() + 4*int64(a.StatesLen())
}
