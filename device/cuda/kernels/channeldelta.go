package kernels

import (
	"mt/device"
	"mt/device/op"
)

// channelDeltaBackward is the backward of the gated delta rule with one decay for each channel; see channeldelta.cu.
var channelDeltaBackward = forTypes("channeldelta", "channel_delta_backward", 0)

const channelThreads = 256

// gatedChannelDeltaBackward launches op.GatedDeltaBackward with a decay for each channel: a block for each head of as many
// sequences as fit in scratch memory, at most most; 0: any number. That number depends on shapes alone, so bits do not depend
// on the device. The limits op.MostDeltaDim and op.MostDeltaHeads ensure that one sequence fits. The sequences' gradients of
// ALog and DtBias are added up afterwards.
func gatedChannelDeltaBackward(l Launcher, a *op.GatedDeltaBackward, most int) {
	each := a.Heads * op.DeltaChunk * (9*a.KeyDim + 4*a.ValueDim + 4*op.DeltaChunk)
	floats := each + a.Heads + a.Decays()
	lanes := max(1, min(a.Seqs, ScratchBytes/4/floats))
	if most > 0 {
		lanes = min(lanes, most)
	}
	mem, n := l.Scratch(4*int64(lanes*floats)), int64(lanes)
	partA, partDt := mem.Tensor(device.F32, 4*n*int64(each), n*int64(a.Heads)), mem.Tensor(device.F32, 4*n*int64(each+a.Heads), n*int64(a.Decays()))
	p := l.Params().Tensors(a.DQKV, a.DGates, a.DA, a.DO, a.QKV, a.Gates, a.A, a.ALog, a.DtBias, a.Cu, a.States, partA, partDt).I64(int64(mem.Addr))
	l.Launch(&channelDeltaBackward[a.QKV.DType], Dim3{uint32(a.Heads), uint32(lanes), 1}, line(channelThreads), 0, deltaShape(p, &a.DeltaShape))
	addUp(l, a.DALog, partA, lanes, a.Heads)
	addUp(l, a.DDtBias, partDt, lanes, a.Decays())
}
