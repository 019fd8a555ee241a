package op

import "mt/device"

// SSDChunk is the number of tokens in a chunk of the state space scan. Chunks begin at multiples of it.
const SSDChunk = 64

// SSDShape describes the sequences and heads of the state space scan of Mamba-2. Each head has a state (HeadDim,
// StateDim). Heads share Groups vectors b and c: head h reads group h / (Heads/Groups).
//
//	Cu (Seqs+1) i32: the first token of each sequence, then the end of the last
//	DtMin, DtMax: bounds of a step; its gradient is 0 outside them
type SSDShape struct {
	Cu                device.Tensor
	Seqs, T           int
	Groups, Heads     int
	HeadDim, StateDim int
	DtStride          int
	DtMin, DtMax      float32
}

// Width returns how many columns a row of the tensor XBC has: x of all heads, and b and c of all groups.
func (a *SSDShape) Width() int { return a.Heads*a.HeadDim + 2*a.Groups*a.StateDim }

// Chunks returns the number of chunks of SSDChunk tokens that T tokens have; the last chunk may be
// shorter.
func (a *SSDShape) Chunks() int { return (a.T + SSDChunk - 1) / SSDChunk }

// StatesLen returns how many elements the tensor States has for T tokens.
func (a *SSDShape) StatesLen() int { return a.Chunks() * a.Heads * a.HeadDim * a.StateDim }

// SSD writes O. A head's state S is 0 where a sequence begins. Each token has the step dt = log(1 + e^(dt' + DtBias)),
// limited to DtMin and DtMax, and updates S:
//
//	S ← e^(−e^ALog·dt)·S + dt·x·bᵀ;  o = S·c + D·x
//
// Chunks of SSDChunk tokens are matrix products; only the states between chunks are computed one after another. Source:
// arXiv:2405.21060, section 6.
//
//	XBC (T, Width) act: x of all heads, b of all groups, c of all groups
//	Dt act: dt' of head h of token t at t·DtStride + h
//	ALog, DtBias, D (Heads) f32; O (T, Heads·HeadDim) act
//	States (⌈T/64⌉, Heads, HeadDim, StateDim) f32: receives the state before each chunk, 0 where a sequence begins
//	Last: none, or (Heads, HeadDim, StateDim) f32 for a single sequence: the state before its first token here, replaced
//	by the state after its last
type SSD struct {
	SSDShape
	O, XBC, Dt, ALog, DtBias, D, States, Last device.Tensor
}

// Name implements device.Op.
func (a *SSD) Name() string { return "SSD" }

// Check implements device.Op. The values of Cu are not checked.
func (a *SSD) Check() error {
	var c checker
	c.ssd(&a.SSDShape, a.XBC, a.Dt, a.ALog, a.DtBias, a.D)
	c.tensor("O", a.O, a.T*a.Heads*a.HeadDim, a.XBC.DType)
	c.tensor("States", a.States, a.StatesLen(), device.F32)
	c.optional("Last", a.Last, a.Heads*a.HeadDim*a.StateDim, device.F32)
	c.single("Last", a.Last, a.Seqs)
	return c.err
}

// SSDBackward overwrites DXBC and DDt, which have the layouts of XBC and Dt. It accumulates DALog, DDtBias and DD (Heads)
// f32, unless they are none. States are input as SSD left them without Last. DStates (StatesLen) f32 is scratch memory.
type SSDBackward struct {
	SSDShape
	DXBC, DDt, DALog, DDtBias, DD, DStates device.Tensor
	DO, XBC, Dt, ALog, DtBias, D, States   device.Tensor
}

// Name implements device.Op.
func (a *SSDBackward) Name() string { return "SSDBackward" }

// Check implements device.Op.
func (a *SSDBackward) Check() error {
	var c checker
	c.ssd(&a.SSDShape, a.XBC, a.Dt, a.ALog, a.DtBias, a.D)
	c.tensor("DXBC", a.DXBC, a.T*a.Width(), a.XBC.DType)
	c.tensor("DDt", a.DDt, strided(a.T, a.DtStride, a.Heads), a.XBC.DType)
	c.optional("DALog", a.DALog, a.Heads, device.F32)
	c.optional("DDtBias", a.DDtBias, a.Heads, device.F32)
	c.optional("DD", a.DD, a.Heads, device.F32)
	c.tensor("DO", a.DO, a.T*a.Heads*a.HeadDim, a.XBC.DType)
	c.tensor("States", a.States, a.StatesLen(), device.F32)
	c.tensor("DStates", a.DStates, a.StatesLen(), device.F32)
	return c.err
}

// ssd checks the arguments that the forward and the backward of the state space scan share.
func (c *checker) ssd(a *SSDShape, xbc, dt, aLog, dtBias, d device.Tensor) {
	c.sizes(a.Seqs, a.T, a.Groups, a.Heads, a.HeadDim, a.StateDim, a.DtStride)
	if a.Groups <= 0 || a.Heads%a.Groups != 0 {
		c.fail("%d heads do not share %d groups evenly", a.Heads, a.Groups)
	}
	if a.HeadDim > MostSSDHead || a.StateDim > MostSSDState {
		c.fail("a state is %d by %d: want at most %d by %d", a.HeadDim, a.StateDim, MostSSDHead, MostSSDState)
	}
	if n := a.Heads * a.HeadDim * a.StateDim; n > MostSSDStates || a.Chunks()*a.Heads > MostSSDChunks {
		c.fail("%d heads with %d elements of state in %d chunks: want at most %d elements, and %d chunks of heads", a.Heads, n, a.Chunks(), MostSSDStates,
			MostSSDChunks)
	}
	if !(a.DtMin >= 0 && a.DtMin <= a.DtMax) {
		c.fail("steps from %g to %g: want bounds from 0 on in order", a.DtMin, a.DtMax)
	}
	c.act("XBC", xbc, a.T*a.Width())
	c.tensor("Dt", dt, strided(a.T, a.DtStride, a.Heads), xbc.DType)
	c.tensor("ALog", aLog, a.Heads, device.F32)
	c.tensor("DtBias", dtBias, a.Heads, device.F32)
	c.tensor("D", d, a.Heads, device.F32)
	c.tensor("Cu", a.Cu, a.Seqs+1, device.I32)
}

// MostSSDHead is the largest HeadDim that devices support for the state space scan, and
// MostSSDState the largest StateDim.
const MostSSDHead, MostSSDState = 128, 256

// MostSSDStates is the largest Heads·HeadDim·StateDim that devices support. MostSSDChunks is the
// largest product of the numbers of chunks and heads.
const MostSSDStates, MostSSDChunks = 1 << 22, 1 << 20

// Work implements Worker: the shape as text, and the FLOPs.
func (a *SSD) Work() (shape string, flops float64) { return a.shape().String(), a.FLOPs() }

// Work implements Worker. It includes the recomputed part of the forward.
func (a *SSDBackward) Work() (shape string, flops float64) { return a.shape().String(), 3 * a.FLOPs() }

// FLOPs counts the forward's work for full chunks. A token takes two products with the state. It
// also takes a product with the chunk's b and one with the chunk's x, of which the causal mask
// leaves half.
func (a *SSDShape) FLOPs() float64 {
	state, keys, values := float64(a.HeadDim*a.StateDim), float64(SSDChunk*a.StateDim), float64(SSDChunk*a.HeadDim)
	return float64(a.T) * float64(a.Heads) * (4*state + keys + values)
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *SSD) Bytes() int64 {
	return int64(a.T*(a.Width()+a.Heads*(a.HeadDim+1)))*a.XBC.DType.Size() + 8*int64(a.StatesLen())
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *SSDBackward) Bytes() int64 {
	return int64(a.T*(2*a.Width()+a.Heads*(a.HeadDim+2)))*a.XBC.DType.Size() + 12*int64(a.StatesLen())
}
