package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() {
	add(GatedDelta)
	add(GatedDeltaBackward)
}

// deltaKernels are the kernels of the gated delta rule, by compute type, and their scratch memory for one head of one
// sequence of the forward, or one key head of the backward: numbers of matrices (chunk, KeyDim), (chunk, ValueDim) and
// (chunk, chunk). The forward has a state besides.
type deltaKernels struct {
	forward, backward           perType
	forwardNeeds, backwardNeeds [3]int
}

// The kernels with one decay for each head (gateddelta.cu) and with one for each channel (channeldelta.cu).
var (
	headDelta = deltaKernels{forTypes("gateddelta", "delta", 0), forTypes("gateddelta", "delta_backward", 0), [3]int{2, 2, 2}, [3]int{5, 4, 3}}
	chanDelta = deltaKernels{forTypes("channeldelta", "channel_delta", 0), forTypes("channeldelta", "channel_delta_backward", 0), [3]int{6, 2, 2},
		[3]int{9, 4, 4}}
)

const deltaThreads = 256

func deltaKernelsOf(a *op.DeltaShape) *deltaKernels {
	if a.ByChannel {
		return &chanDelta
	}
	return &headDelta
}

// deltaNeeds returns how many floats matrices take: n of each kind, see deltaKernels.
func deltaNeeds(a *op.DeltaShape, n [3]int) int {
	const chunk = op.DeltaChunk
	return n[0]*chunk*a.KeyDim + n[1]*chunk*a.ValueDim + n[2]*chunk*chunk
}

// GatedDelta launches op.GatedDelta: a block for each head of as many sequences as fit in scratch memory.
func GatedDelta(l Launcher, a *op.GatedDelta) { gatedDelta(l, a, a.Seqs) }

// gatedDelta launches op.GatedDelta with at most most sequences at a time. Tests pass a small number.
func gatedDelta(l Launcher, a *op.GatedDelta, most int) {
	if a.T == 0 {
		return
	}
	k := deltaKernelsOf(&a.DeltaShape)
	scratch, lanes := deltaLanes(l, most, a.Heads*(deltaNeeds(&a.DeltaShape, k.forwardNeeds)+a.KeyDim*a.ValueDim))
	p := l.Params().Tensor(a.O).Tensor(a.QKV).Tensor(a.Gates)
	if a.ByChannel {
		p.Tensor(a.A)
	}
	p.Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.Cu).Tensor(a.States).Tensor(a.Last).Tensor(scratch)
	l.Launch(&k.forward[a.QKV.DType], Dim3{uint32(a.Heads), uint32(lanes), 1}, line(deltaThreads), 0, deltaShape(p, &a.DeltaShape))
}

// GatedDeltaBackward launches op.GatedDeltaBackward: a block for each key head of as many sequences as fit in scratch
// memory. The sequences' gradients of ALog and DtBias are added up afterwards.
func GatedDeltaBackward(l Launcher, a *op.GatedDeltaBackward) { gatedDeltaBackward(l, a, a.Seqs) }

// gatedDeltaBackward launches op.GatedDeltaBackward with at most most sequences at a time. Tests pass a small number.
func gatedDeltaBackward(l Launcher, a *op.GatedDeltaBackward, most int) {
	if a.T == 0 {
		return
	}
	k := deltaKernelsOf(&a.DeltaShape)
	each := a.KeyHeads * deltaNeeds(&a.DeltaShape, k.backwardNeeds)
	scratch, lanes := deltaLanes(l, most, each+a.Heads+a.Decays())
	all := int64(lanes * each)
	partA, partDt := scratch.Slice(all, int64(lanes*a.Heads)), scratch.Slice(all+int64(lanes*a.Heads), int64(lanes*a.Decays()))
	p := l.Params().Tensor(a.DQKV).Tensor(a.DGates)
	if a.ByChannel {
		p.Tensor(a.DA)
	}
	p.Tensor(a.DO).Tensor(a.QKV).Tensor(a.Gates)
	if a.ByChannel {
		p.Tensor(a.A)
	}
	p.Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.Cu).Tensor(a.States).Tensor(partA).Tensor(partDt).Tensor(scratch)
	l.Launch(&k.backward[a.QKV.DType], Dim3{uint32(a.KeyHeads), uint32(lanes), 1}, line(deltaThreads), 0, deltaShape(p, &a.DeltaShape))
	addUp(l, a.DALog, partA, lanes, a.Heads)
	addUp(l, a.DDtBias, partDt, lanes, a.Decays())
}

func deltaShape(p *Params, a *op.DeltaShape) *Params {
	return p.I32(a.Seqs).I32(a.KeyHeads).I32(a.Heads).I32(a.KeyDim).I32(a.ValueDim).I32(a.GateStride)
}

// deltaLanes returns how many sequences are computed at a time, at most most, and scratch memory
// with floats numbers for each of them. Both depend on shapes alone, so bits do not depend on the
// device. The limits op.MostDeltaDim and op.MostDeltaHeads ensure that one sequence fits.
func deltaLanes(l Launcher, most, floats int) (device.Tensor, int) {
	lanes := max(1, min(most, ScratchBytes/4/floats))
	n := int64(lanes * floats)
	return l.Scratch(4*n).Tensor(device.F32, 0, n), lanes
}
