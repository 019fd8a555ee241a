package cuda

import (
	"fmt"

	"mt/device"
	"mt/device/args"
	"mt/device/cuda/kernels"
)

// ops implements device.Ops: package args checks what the shapes say, the rest is
// the kernels'. What depends on the values of index tensors is not checked: they
// are the caller's word.
type ops struct{}

// on is the stream under s, which must be one of this package.
func on(s device.Stream) *stream { return s.(*stream) }

// AddBiasGrad accumulates db (N) f32 += Σ_t dy (T, N) act.
func (ops) AddBiasGrad(s device.Stream, db, dy device.Tensor, T, N int) {
	on(s).op("AddBiasGrad", args.AddBiasGrad(db, dy, T, N), func(l kernels.Launcher) { kernels.AddBiasGrad(l, db, dy, T, N) })
}

// RMSNorm writes Y and RStd.
func (ops) RMSNorm(s device.Stream, a device.RMSNorm) {
	on(s).op("RMSNorm", args.RMSNorm(a), func(l kernels.Launcher) { kernels.RMSNorm(l, a) })
}

// RMSNormBackward writes DX, or adds to it, and accumulates DW.
func (ops) RMSNormBackward(s device.Stream, a device.RMSNormBackward) {
	on(s).op("RMSNormBackward", args.RMSNormBackward(a), func(l kernels.Launcher) { kernels.RMSNormBackward(l, a) })
}

// RoPE rotates heads in place.
func (ops) RoPE(s device.Stream, a device.RoPE) {
	on(s).op("RoPE", args.RoPE(a), func(l kernels.Launcher) { kernels.RoPE(l, a) })
}

// headDim is bad, or else the error of heads too wide for the kernels.
func headDim(bad error, dim int) error {
	if bad == nil && dim > kernels.MaxHeadDim {
		return fmt.Errorf("heads of %d elements: the kernels take at most %d", dim, kernels.MaxHeadDim)
	}
	return bad
}

// Attention writes O and LSE.
func (ops) Attention(s device.Stream, a device.Attention) {
	on(s).op("Attention", headDim(args.Attention(a), a.Dim), func(l kernels.Launcher) { kernels.Attention(l, a) })
}

// AttentionBackward overwrites DQ, DK and DV.
func (ops) AttentionBackward(s device.Stream, a device.AttentionBackward) {
	on(s).op("AttentionBackward", headDim(args.AttentionBackward(a), a.Dim), func(l kernels.Launcher) { kernels.AttentionBackward(l, a) })
}

// GLU writes y (T, F) = f(gate)·up from gu (T, 2F).
func (ops) GLU(s device.Stream, f device.Activation, y, gu device.Tensor, T, F int) {
	on(s).op("GLU", args.GLU(f, y, gu, T, F), func(l kernels.Launcher) { kernels.GLU(l, f, y, gu, T, F) })
}

// GLUBackward overwrites dgu (T, 2F), which may be gu, and y unless it is none;
// y may be dy.
func (ops) GLUBackward(s device.Stream, f device.Activation, dgu, y, dy, gu device.Tensor, T, F int) {
	on(s).op("GLUBackward", args.GLUBackward(f, dgu, y, dy, gu, T, F), func(l kernels.Launcher) { kernels.GLUBackward(l, f, dgu, y, dy, gu, T, F) })
}

// GatherRows writes dst (T, C) = src (U, C) rows index (T).
func (ops) GatherRows(s device.Stream, dst, src, index device.Tensor, T, C int) {
	on(s).op("GatherRows", args.GatherRows(dst, src, index, T, C), func(l kernels.Launcher) { kernels.GatherRows(l, dst, src, index, T, C) })
}

// ScatterAddRows accumulates drows (U, C) f32: row u += Σ dy (T, C) act rows
// pos[start[u]:start[u+1]], in that order.
func (ops) ScatterAddRows(s device.Stream, drows, dy, start, pos device.Tensor, U, T, C int) {
	on(s).op("ScatterAddRows", args.ScatterAddRows(drows, dy, start, pos, U, T, C), func(l kernels.Launcher) { kernels.ScatterAddRows(l, drows, dy, start, pos, U, T, C) })
}

// CrossEntropy computes losses and, unless ForwardOnly, turns logits into their
// gradient in place.
func (ops) CrossEntropy(s device.Stream, a device.CrossEntropy) {
	on(s).op("CrossEntropy", args.CrossEntropy(a), func(l kernels.Launcher) { kernels.CrossEntropy(l, a) })
}

// CrossEntropyShard is CrossEntropy over a vocabulary in shards.
func (ops) CrossEntropyShard(s device.Stream, a device.CrossEntropyShard) {
	on(s).op("CrossEntropyShard", args.CrossEntropyShard(a), func(l kernels.Launcher) { kernels.CrossEntropyShard(l, a) })
}

// Convert writes dst (n) = src (n), fp32 or bf16 each.
func (ops) Convert(s device.Stream, dst, src device.Tensor, n int64) {
	on(s).op("Convert", args.Convert(dst, src, n), func(l kernels.Launcher) { kernels.Convert(l, dst, src, n) })
}

// Scale multiplies x (n) by factor in place.
func (ops) Scale(s device.Stream, x device.Tensor, n int64, factor float32) {
	on(s).op("Scale", args.Scale(x, n), func(l kernels.Launcher) { kernels.Scale(l, x, n, factor) })
}

// ScaleRows multiplies row t of X by W[Index[t]], in place.
func (ops) ScaleRows(s device.Stream, a device.ScaleRows) {
	on(s).op("ScaleRows", args.ScaleRows(a), func(l kernels.Launcher) { kernels.ScaleRows(l, a) })
}

// ScaleRowsBackward writes DW[Index[t]] and scales row t of both Y and DY.
func (ops) ScaleRowsBackward(s device.Stream, a device.ScaleRowsBackward) {
	on(s).op("ScaleRowsBackward", args.ScaleRowsBackward(a), func(l kernels.Launcher) { kernels.ScaleRowsBackward(l, a) })
}

// AddRows adds row t of src (T, C) to row index[t] of dst (U, C) f32.
func (ops) AddRows(s device.Stream, dst, src, index device.Tensor, U, T, C int) {
	on(s).op("AddRows", args.AddRows(dst, src, index, U, T, C), func(l kernels.Launcher) { kernels.AddRows(l, dst, src, index, U, T, C) })
}

// Router chooses the experts of every token.
func (ops) Router(s device.Stream, a device.Router) {
	on(s).op("Router", args.Router(a), func(l kernels.Launcher) { kernels.Router(l, a) })
}

// RouterBackward overwrites DLogits.
func (ops) RouterBackward(s device.Stream, a device.RouterBackward) {
	on(s).op("RouterBackward", args.RouterBackward(a), func(l kernels.Launcher) { kernels.RouterBackward(l, a) })
}

// SortByExpert lists the pairs (token, choice) by expert.
func (ops) SortByExpert(s device.Stream, a device.SortByExpert) {
	on(s).op("SortByExpert", args.SortByExpert(a), func(l kernels.Launcher) { kernels.SortByExpert(l, a) })
}
