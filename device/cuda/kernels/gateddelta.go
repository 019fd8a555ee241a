package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() {
	add(GatedDelta)
	add(GatedDeltaBackward)
}

// Kernels of the gated delta rule, by compute type; see gateddelta.cu.
var (
	delta         = forTypes("gateddelta", "delta", 0)
	deltaBackward = forTypes("gateddelta", "delta_backward", 0)
)

const deltaThreads = 256

// GatedDelta launches op.GatedDelta: a block for each head of as many sequences as fit in scratch memory.
func GatedDelta(l Launcher, a *op.GatedDelta) { gatedDelta(l, a, a.Seqs) }

// gatedDelta launches op.GatedDelta with at most most sequences at a time. Tests pass a small number.
func gatedDelta(l Launcher, a *op.GatedDelta, most int) {
	if a.T == 0 {
		return
	}
	const chunk = op.DeltaChunk
	each := 2*chunk*a.KeyDim + a.KeyDim*a.ValueDim + 2*chunk*a.ValueDim + 2*chunk*chunk
	scratch, lanes := deltaLanes(l, most, a.Heads*each)
	p := l.Params().Tensor(a.O).Tensor(a.QKV).Tensor(a.Gates).Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.Cu).Tensor(a.States).Tensor(a.Last).
		Tensor(scratch)
	l.Launch(&delta[a.QKV.DType], Dim3{uint32(a.Heads), uint32(lanes), 1}, line(deltaThreads), 0, deltaShape(p, &a.DeltaShape))
}

// GatedDeltaBackward launches op.GatedDeltaBackward: a block for each key head of as many sequences as fit in scratch
// memory. The sequences' gradients of ALog and DtBias are added up afterwards.
func GatedDeltaBackward(l Launcher, a *op.GatedDeltaBackward) { gatedDeltaBackward(l, a, a.Seqs) }

// gatedDeltaBackward launches op.GatedDeltaBackward with at most most sequences at a time. Tests pass a small number.
func gatedDeltaBackward(l Launcher, a *op.GatedDeltaBackward, most int) {
	if a.T == 0 {
		return
	}
	const chunk = op.DeltaChunk
	each := a.KeyHeads * (5*chunk*a.KeyDim + 4*chunk*a.ValueDim + 3*chunk*chunk)
	scratch, lanes := deltaLanes(l, most, each+2*a.Heads)
	sums := int64(lanes * a.Heads)
	all := int64(lanes * each)
	partA, partDt := scratch.Slice(all, sums), scratch.Slice(all+sums, sums)
	p := l.Params().Tensor(a.DQKV).Tensor(a.DGates).Tensor(a.DO).Tensor(a.QKV).Tensor(a.Gates).Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.Cu).
		Tensor(a.States).Tensor(partA).Tensor(partDt).Tensor(scratch)
	l.Launch(&deltaBackward[a.QKV.DType], Dim3{uint32(a.KeyHeads), uint32(lanes), 1}, line(deltaThreads), 0, deltaShape(p, &a.DeltaShape))
	addUp(l, a.DALog, partA, lanes, a.Heads)
	addUp(l, a.DDtBias, partDt, lanes, a.Heads)
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
