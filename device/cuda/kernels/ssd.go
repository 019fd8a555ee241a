package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() {
	add(SSD)
	add(SSDBackward)
}

// Kernels of the state space scan, by compute type; see ssd.cu. States are fp32.
var (
	ssdStates  = forTypes("ssd", "ssd_states", 0)
	ssdScan    = forTypes("ssd", "ssd_scan", 0)
	ssdDStates = forTypes("ssd", "ssd_dstates", 0)
	ssdHeads   = forTypes("ssd", "ssd_heads", 0)
	ssdGroups  = forTypes("ssd", "ssd_groups", 0)
	ssdPass    = Kernel{Module: "ssd", Name: "ssd_pass"}
	ssdDPass   = Kernel{Module: "ssd", Name: "ssd_dpass"}
)

const ssdThreads, ssdTile = 128, 64

// SSD launches op.SSD in three steps: what each chunk adds to the state, then the state before each
// chunk, and then the outputs.
func SSD(l Launcher, a *op.SSD) {
	if a.T == 0 {
		return
	}
	dt, of, state := a.XBC.DType, &a.SSDShape, int64(a.Heads*a.HeadDim*a.StateDim)
	keeps, behind := int64(a.Chunks()*a.Heads), device.Tensor{}
	n := keeps
	if !a.Last.None() {
		n += state
	}
	scratch := l.Scratch(4*n).Tensor(device.F32, 0, n)
	if !a.Last.None() {
		behind = scratch.Slice(keeps, state)
	}
	goesOn := second(!a.Last.None())
	p := l.Params().Tensor(a.States).Tensor(behind).Tensor(scratch).Tensor(a.XBC).Tensor(a.Dt).Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.Cu).I32(goesOn)
	ssdLaunch(l, &ssdStates[dt], a.Chunks()-1+goesOn, a.Heads*ssdTiles(a.HeadDim)*ssdTiles(a.StateDim), ssdShape(p, of))
	p = l.Params().Tensor(a.States).Tensor(a.Last).Tensor(behind).Tensor(scratch)
	l.Launch(&ssdPass, line(ceilDiv(state, 256)), line(256), 0, ssdShape(p, of))
	p = l.Params().Tensor(a.O).Tensor(a.XBC).Tensor(a.Dt).Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.D).Tensor(a.Cu).Tensor(a.States).I32(goesOn)
	ssdLaunch(l, &ssdScan[dt], a.Chunks(), a.Heads*ssdTiles(a.HeadDim), ssdShape(p, of))
}

// SSDBackward launches op.SSDBackward. Each chunk writes its terms of the gradients of ALog, DtBias
// and D; the last kernel adds them up.
func SSDBackward(l Launcher, a *op.SSDBackward) {
	if a.T == 0 {
		return
	}
	dt, of, state := a.XBC.DType, &a.SSDShape, int64(a.Heads*a.HeadDim*a.StateDim)
	each := int64(a.Chunks() * a.Heads)
	scratch := l.Scratch(16*each).Tensor(device.F32, 0, 4*each)
	keeps, parts := scratch.Slice(0, each), scratch.Slice(each, 3*each)
	p := l.Params().Tensor(a.DStates).Tensor(keeps).Tensor(a.DO).Tensor(a.XBC).Tensor(a.Dt).Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.Cu)
	ssdLaunch(l, &ssdDStates[dt], a.Chunks()-1, a.Heads*ssdTiles(a.HeadDim)*ssdTiles(a.StateDim), ssdShape(p, of))
	p = l.Params().Tensor(a.DStates).Tensor(keeps)
	l.Launch(&ssdDPass, line(ceilDiv(state, 256)), line(256), 0, ssdShape(p, of))
	p = l.Params().Tensor(a.DXBC).Tensor(a.DDt).Tensor(parts).Tensor(a.DO).Tensor(a.XBC).Tensor(a.Dt).Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.D).
		Tensor(a.Cu).Tensor(a.States).Tensor(a.DStates)
	ssdLaunch(l, &ssdHeads[dt], a.Chunks(), a.Heads, ssdShape(p, of))
	p = l.Params().Tensor(a.DXBC).Tensor(a.DO).Tensor(a.XBC).Tensor(a.Dt).Tensor(a.ALog).Tensor(a.DtBias).Tensor(a.Cu).Tensor(a.States).Tensor(a.DStates)
	ssdLaunch(l, &ssdGroups[dt], a.Chunks(), 2*a.Groups*ssdTiles(a.StateDim), ssdShape(p, of))
	for i, to := range []device.Tensor{a.DALog, a.DDtBias, a.DD} {
		addUp(l, to, parts.Slice(int64(i)*each, each), a.Chunks(), a.Heads)
	}
}

func ssdTiles(columns int) int { return int(ceilDiv(int64(columns), ssdTile)) }

// ssdLaunch launches k with y thread blocks for each of chunks chunks. It launches nothing if there
// are no chunks.
func ssdLaunch(l Launcher, k *Kernel, chunks, y int, p *Params) {
	if chunks > 0 {
		l.Launch(k, Dim3{uint32(chunks), uint32(y), 1}, line(ssdThreads), 0, p)
	}
}

func ssdShape(p *Params, a *op.SSDShape) *Params {
	return p.I32(a.Seqs).I32(a.T).I32(a.Groups).I32(a.Heads).I32(a.HeadDim).I32(a.StateDim).I32(a.DtStride).F32(a.DtMin).F32(a.DtMax)
}
