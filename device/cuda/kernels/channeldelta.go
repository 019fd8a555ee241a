package kernels

import (
	"mt/device"
	"mt/device/op"
)

// channelDeltaBackward is the backward of the gated delta rule with one decay for each channel; see channeldelta.cu.
var channelDeltaBackward = forTypes("channeldelta", "channel_delta_backward", 0)

const channelThreads = 256

// channelNeeds returns how many floats of scratch memory matrices take: keys of shape (chunk, KeyDim), values of shape (chunk,
// ValueDim) and squares of shape (chunk, chunk).
func channelNeeds(a *op.DeltaShape, keys, values, squares int) int {
	return op.DeltaChunk * (keys*a.KeyDim + values*a.ValueDim + squares*op.DeltaChunk)
}

// gatedChannelDeltaBackward launches op.GatedDeltaBackward with a decay for each channel: a block for each head of as many
// sequences as fit in scratch memory, at most most; 0: any number. The sequences' gradients of ALog and DtBias are added up
// afterwards.
func gatedChannelDeltaBackward(l Launcher, a *op.GatedDeltaBackward, most int) {
	each := a.KeyHeads * channelNeeds(&a.DeltaShape, 9, 4, 4)
	scratch, lanes := deltaLanes(l, a.Seqs, most, each+a.Heads+a.Decays())
	all := int64(lanes * each)
	partA, partDt := scratch.Slice(all, int64(lanes*a.Heads)), scratch.Slice(all+int64(lanes*a.Heads), int64(lanes*a.Decays()))
	p := l.Params().Tensor(a.DQKV).Tensor(a.DGates).Tensor(a.DA).Tensor(a.DO).Tensor(a.QKV).Tensor(a.Gates).Tensor(a.A).Tensor(a.ALog).
		Tensor(a.DtBias).Tensor(a.Cu).Tensor(a.States).Tensor(partA).Tensor(partDt).Tensor(scratch)
	l.Launch(&channelDeltaBackward[a.QKV.DType], Dim3{uint32(a.KeyHeads), uint32(lanes), 1}, line(channelThreads), 0, deltaShape(p, &a.DeltaShape))
	addUp(l, a.DALog, partA, lanes, a.Heads)
	addUp(l, a.DDtBias, partDt, lanes, a.Decays())
}

// deltaLanes returns how many of seqs sequences are computed at a time, at most most, and scratch memory
// with floats numbers for each of them. Both depend on shapes alone, so bits do not depend on the
// device. The limits op.MostDeltaDim and op.MostDeltaHeads ensure that one sequence fits.
func deltaLanes(l Launcher, seqs, most, floats int) (device.Tensor, int) {
	if most == 0 {
		most = seqs
	}
	lanes := max(1, min(seqs, most, ScratchBytes/4/floats))
	n := int64(lanes * floats)
	return l.Scratch(4*n).Tensor(device.F32, 0, n), lanes
}
