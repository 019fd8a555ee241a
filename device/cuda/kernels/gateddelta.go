package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() {
	add(GatedDelta)
	add(GatedDeltaBackward)
}

// Kernels of the gated delta rule, by compute type; see gateddelta.cu. Each step has a second kernel for a decay for each
// channel.
var (
	deltaSystem    = forTypes("gateddelta", "delta_system", 0)
	channelSystem  = forTypes("gateddelta", "channel_system", channelSystemShared[device.F32])
	deltaStates    = deltaForms("states", &deltaStatesShared)
	deltaOut       = deltaForms("out", new([2][2]int))
	deltaValues    = deltaForms("values", new([2][2]int))
	deltaDStates   = deltaForms("dstates", &deltaDStatesShared)
	deltaGateGrads = forTypes("gateddelta", "delta_gates", 0)
	deltaKeys      = forTypes("gateddelta", "delta_keys", deltaKeysShared[device.F32])
	channelKeys    = forTypes("gateddelta", "channel_keys", channelKeysShared[device.F32])
)

// deltaForms returns the kernels of both forms; shared has their dynamic shared memory in bytes, by form and compute type.
func deltaForms(name string, shared *[2][2]int) [2][2]Kernel {
	return [2][2]Kernel{forTypes("gateddelta", "delta_"+name, shared[0][device.F32]), forTypes("gateddelta", "channel_"+name, shared[1][device.F32])}
}

// deltaTile is the number of rows and columns of a tile, deltaPart the number of columns of a state in a block that goes from
// chunk to chunk, and deltaGates the number of floats that delta_system keeps for a chunk and head.
const deltaTile, deltaPart, deltaGates, deltaThreads = op.DeltaChunk, 32, 8 * op.DeltaChunk, 128

// Dynamic shared memory of kernels in bytes, by compute type.
var (
	deltaStatesShared   = [2][2]int{{device.F32: 81920, device.BF16: 45056}, {device.F32: 81920, device.BF16: 63488}}
	deltaDStatesShared  = [2][2]int{{device.F32: 91136, device.BF16: 68608}, {device.F32: 91136, device.BF16: 87040}}
	deltaKeysShared     = [2]int{device.F32: 54784, device.BF16: 30208}
	channelSystemShared = [2]int{device.F32: 97280, device.BF16: 64512}
	channelKeysShared   = [2]int{device.F32: 90256, device.BF16: 61584}
)

// deltaArray is an array in scratch memory with n elements for each head of each chunk.
type deltaArray struct {
	dt device.DType
	n  int
}

// deltaSegments divides the chunks of the gated delta rule into segments, so that arrays of a segment's chunks fit in scratch
// memory. The division depends on shapes alone, and no bit depends on the division.
type deltaSegments struct {
	*op.DeltaShape
	l           Launcher
	all, length int               // chunks, and chunks of a segment
	arrays      [10]device.Tensor // of a segment
	states      [3]device.Tensor  // (Heads, KeyDim, ValueDim) f32
}

// segmentsOf returns segments of at most most chunks (0: any number), with scratch memory for arrays and for a number of
// states. Arrays in fp32 must precede those in bf16, so that all are aligned. An array without elements is none.
func segmentsOf(l Launcher, a *op.DeltaShape, most, states int, arrays [10]deltaArray) deltaSegments {
	s := deltaSegments{DeltaShape: a, l: l, all: (a.T-1)/op.DeltaChunk + a.Seqs}
	state, each := 4*int64(a.Heads*a.KeyDim*a.ValueDim), int64(0)
	for _, x := range arrays {
		each += int64(a.Heads*x.n) * x.dt.Size()
	}
	s.length = min(s.all, int((ScratchBytes-int64(states)*state)/each))
	if most > 0 {
		s.length = min(s.length, most)
	}
	mem, at := l.Scratch(int64(states)*state+int64(s.length)*each), int64(0)
	for i := range states {
		s.states[i], at = mem.Tensor(device.F32, at, state/4), at+state
	}
	for i, x := range arrays {
		if n := int64(s.length * a.Heads * x.n); n > 0 {
			s.arrays[i], at = mem.Tensor(x.dt, at, n), at+n*x.dt.Size()
		}
	}
	return s
}

// launch launches k for the n chunks from start on, with y thread blocks each.
func (s *deltaSegments) launch(k *Kernel, start, n, y, threads, shared int, p *Params) {
	s.l.Launch(k, Dim3{uint32(n), uint32(y), 1}, line(int64(threads)), shared, deltaShape(p, s.DeltaShape).I32(start))
}

// system launches delta_system or channel_system, which writes rows, too.
func (s *deltaSegments) system(start, n int, systems, gates device.Tensor, rows []device.Tensor, qkv, b, a, aLog, dtBias device.Tensor) {
	p, dt := s.l.Params().Tensors(systems, gates), qkv.DType
	if s.ByChannel {
		p = p.Tensors(rows...).Tensors(qkv, b, a, aLog, dtBias, s.Cu)
		s.launch(&channelSystem[dt], start, n, s.Heads, deltaThreads, channelSystemShared[dt], p)
	} else {
		s.launch(&deltaSystem[dt], start, n, s.Heads, deltaThreads, 0, p.Tensors(qkv, b, aLog, dtBias, s.Cu))
	}
}

// GatedDelta launches op.GatedDelta.
func GatedDelta(l Launcher, a *op.GatedDelta) { gatedDelta(l, a, 0) }

// gatedDelta launches op.GatedDelta in segments of at most most chunks; 0: any number. Tests pass a small number. With a
// decay for each channel a segment has decayed rows of q and k (twice), and scores, too.
func gatedDelta(l Launcher, a *op.GatedDelta, most int) {
	if a.T == 0 {
		return
	}
	dt, kept, form, square := a.QKV.DType, 2, 0, deltaArray{a.QKV.DType, deltaTile * deltaTile}
	arrays := [10]deltaArray{{device.F32, deltaGates}, {device.F32, 0}, square}
	if a.States.None() {
		arrays[1].n = a.KeyDim * a.ValueDim
	}
	if a.ByChannel {
		rows := deltaArray{dt, deltaTile * a.KeyDim}
		form, arrays[3], arrays[4], arrays[5], arrays[6] = 1, rows, rows, rows, square
	}
	if !a.Last.None() {
		kept = 3 // the last is the state before the sequence
	}
	s := segmentsOf(l, &a.DeltaShape, most, kept, arrays)
	gates, states, systems, initial := s.arrays[0], a.States, s.arrays[2], device.Tensor{}
	if states.None() {
		states = s.arrays[1]
	}
	if kept == 3 {
		initial = s.states[2]
	}
	rows := s.arrays[3:7]
	at := func(p *Params) *Params {
		return p.Tensor(a.QKV).Tensors(rows...).Tensors(a.Cu, states, initial).Bool(a.States.None())
	}
	for start := 0; start < s.all; start += s.length {
		n := min(s.length, s.all-start)
		s.system(start, n, systems, gates, rows, a.QKV, a.Gates, a.A, a.ALog, a.DtBias)
		s.states[0], s.states[1] = s.states[1], s.states[0]
		p := at(l.Params().Tensors(a.O, systems, gates, s.states[0], s.states[1])).Tensor(a.Last)
		s.launch(&deltaStates[form][dt], start, n, a.Heads*deltaTiles(a.ValueDim, deltaPart), deltaThreads, deltaStatesShared[form][dt], p)
		s.launch(&deltaOut[form][dt], start, n, a.Heads*deltaTiles(a.ValueDim, deltaTile), deltaThreads, 0, at(l.Params().Tensors(a.O, gates)))
	}
}

func deltaTiles(columns, of int) int { return int(ceilDiv(int64(columns), int64(of))) }

func deltaShape(p *Params, a *op.DeltaShape) *Params {
	return p.I32(a.Seqs).I32(a.KeyHeads).I32(a.Heads).I32(a.KeyDim).I32(a.ValueDim).I32(a.GateStride)
}

// GatedDeltaBackward launches op.GatedDeltaBackward.
func GatedDeltaBackward(l Launcher, a *op.GatedDeltaBackward) { gatedDeltaBackward(l, a, 0) }

// gatedDeltaBackward launches op.GatedDeltaBackward in segments of at most most chunks; 0: any number. Tests pass a small number.
func gatedDeltaBackward(l Launcher, a *op.GatedDeltaBackward, most int) {
	if a.T == 0 {
		return
	}
	dt, form, parts := a.QKV.DType, 0, 2
	square := deltaArray{dt, deltaTile * deltaTile}
	arrays := [10]deltaArray{{device.F32, deltaGates}, {device.F32, 2}, {}, square, square, square, {}, {}, {dt, deltaTile * a.ValueDim}, {dt, a.KeyDim * a.ValueDim}}
	if a.ByChannel {
		rows := deltaArray{dt, deltaTile * a.KeyDim}
		form, parts = 1, 1+a.KeyDim
		arrays[2], arrays[4], arrays[5], arrays[6], arrays[7] = deltaArray{device.F32, 2 * rows.n}, rows, rows, rows, square
	}
	arrays[1].n = parts
	s := segmentsOf(l, &a.DeltaShape, most, 2, arrays)
	gates, sums, systems, rows, fresh, dstates := s.arrays[0], s.arrays[1], s.arrays[3], s.arrays[4:8], s.arrays[8], s.arrays[9]
	for start := (s.all - 1) / s.length * s.length; start >= 0; start -= s.length {
		n := min(s.length, s.all-start)
		s.system(start, n, systems, gates, rows, a.QKV, a.Gates, a.A, a.ALog, a.DtBias)
		p := l.Params().Tensors(a.DQKV, fresh, systems, gates, a.DO, a.QKV).Tensors(rows...).Tensors(a.Cu, a.States)
		s.launch(&deltaValues[form][dt], start, n, a.Heads*deltaTiles(a.ValueDim, deltaTile), deltaThreads, 0, p)
		s.states[0], s.states[1] = s.states[1], s.states[0]
		p = l.Params().Tensors(a.DQKV, dstates, systems, gates, s.states[0], s.states[1], a.DO, a.QKV).Tensors(rows...).Tensor(a.Cu)
		s.launch(&deltaDStates[form][dt], start, n, a.Heads*deltaTiles(a.ValueDim, deltaPart), deltaThreads, deltaDStatesShared[form][dt], p)
		if a.ByChannel {
			p = l.Params().Tensors(a.DQKV, a.DGates, a.DA, sums, s.arrays[2], dstates, fresh, gates, a.DO, a.QKV, a.A, a.ALog, a.DtBias, a.Cu, a.States)
			s.launch(&channelKeys[dt], start, n, a.Heads, deltaThreads, channelKeysShared[dt], p)
		} else {
			p = l.Params().Tensors(a.DGates, sums, rows[0], rows[1], a.DQKV, dstates, fresh, gates, a.DO, a.QKV, a.Gates, a.ALog, a.DtBias, a.Cu, a.States)
			s.launch(&deltaGateGrads[dt], start, n, a.Heads, deltaThreads, 0, p)
			p = l.Params().Tensors(a.DQKV, rows[0], rows[1], dstates, fresh, gates, a.DO, a.QKV, a.Cu, a.States)
			s.launch(&deltaKeys[dt], start, n, 2*a.KeyHeads, 2*deltaThreads, deltaKeysShared[dt], p)
		}
		each := int64(n * a.Heads)
		addUp(l, a.DALog, sums.Slice(0, each), n, a.Heads)
		addUp(l, a.DDtBias, sums.Slice(each, each*int64(parts-1)), n, a.Decays())
	}
}
