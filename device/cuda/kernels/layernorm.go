package kernels

import "mt/device/op"

func init() {
	add(LayerNorm)
	add(LayerNormBackward)
}

// The two ways to normalize a row: held in registers (rows), or read several times (wide); see
// layernorm.cuh.
var (
	layerNormRows = forAccess("layernorm", "layernorm_rows")
	layerNormWide = forAccess("layernorm", "layernorm_wide")

	layerNormBackwardRows   = forAccess("layernorm_backward", "layernorm_backward_rows")
	layerNormBackwardWide   = forAccess("layernorm_backward", "layernorm_backward_wide")
	layerNormBackwardWideDW = forAccess("layernorm_backward", "layernorm_backward_wide_dw")
)

// LayerNorm launches op.LayerNorm.
func LayerNorm(l Launcher, a *op.LayerNorm) {
	if a.Rows == 0 || a.Dim == 0 {
		return
	}
	dt, count := a.X.DType, int64(a.Rows)
	wide := wideAt(a.X, a.Y, a.W, a.B) && wideBy(dt, a.Dim)
	p := l.Params().Tensor(a.Y).Tensor(a.Stats).Tensor(a.X).Tensor(a.W).Tensor(a.B)
	if threads := threadsFor(a.Dim, wide); threads > 0 {
		each := min(max(count/1024, 1), 4)
		p.I32(a.Rows).I32(a.Dim).F32(a.Eps).I32(int(each))
		l.Launch(layerNormRows.of(wide, dt), line(ceilDiv(count, each)), line(int64(threads)), 0, p)
		return
	}
	l.Launch(layerNormWide.of(wide, dt), line(count), line(rowThreads), 0, p.I32(a.Dim).F32(a.Eps))
}

// LayerNormBackward launches op.LayerNormBackward: first DX and, for DW, sums over slices of the
// rows, then DW from these.
func LayerNormBackward(l Launcher, a *op.LayerNormBackward) {
	if a.Rows == 0 || a.Dim == 0 {
		return
	}
	dt, count, dim := a.X.DType, int64(a.Rows), int64(a.Dim)
	wide := wideAt(a.X, a.DX, a.DY, a.W) && wideBy(dt, a.Dim)
	threads := threadsFor(a.Dim, wide)
	if threads == 0 {
		layerNormBackwardOfWide(l, a, wide)
		return
	}
	part, slices, each := slicesOf(l, count, dim, 8, max(1, 1<<21/dim)) // the same limit on partial sums as in RMSNormBackward
	p := l.Params().Tensor(a.DX).Tensor(part).Tensor(a.DY).Tensor(a.X).Tensor(a.W).Tensor(a.Stats)
	p.I32(a.Rows).I32(a.Dim).Bool(a.Add).I32(each)
	l.Launch(layerNormBackwardRows.of(wide, dt), line(int64(slices)), line(int64(threads)), 0, p)
	addUp(l, a.DW, part, slices, a.Dim)
}

// layerNormBackwardOfWide launches the backward for rows that do not fit in a block's registers. It
// computes DW before DX, because DX may overwrite DY.
func layerNormBackwardOfWide(l Launcher, a *op.LayerNormBackward, wide bool) {
	dt, dim := a.X.DType, int64(a.Dim)
	if !a.DW.None() {
		part, slices, each := slicesOf(l, int64(a.Rows), dim, 8, max(1, min(64, ScratchBytes/4/dim)))
		p := l.Params().Tensor(part).Tensor(a.DY).Tensor(a.X).Tensor(a.Stats).I32(a.Rows).I32(a.Dim).I32(each)
		columns := ceilDiv(dim, int64(rowThreads*chunkOf(wide, dt)))
		l.Launch(layerNormBackwardWideDW.of(wide, dt), Dim3{uint32(columns), uint32(slices), 1}, line(rowThreads), 0, p)
		addUp(l, a.DW, part, slices, a.Dim)
	}
	p := l.Params().Tensor(a.DX).Tensor(a.DY).Tensor(a.X).Tensor(a.W).Tensor(a.Stats).I32(a.Dim).Bool(a.Add)
	l.Launch(layerNormBackwardWide.of(wide, dt), line(int64(a.Rows)), line(rowThreads), 0, p)
}
