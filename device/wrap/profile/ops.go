package profile

import (
	"fmt"
	"math/bits"

	"mt/device"
)

// ops implements device.Ops.
type ops struct {
	inner device.Ops
	dev   *Device
}

func (o ops) plain(s device.Stream, op string, f func()) { o.dev.time(s, key{op: op}, 0, f) }

// MatMul counts 2·M·N·K.
func (o ops) MatMul(s device.Stream, m device.MatMul) {
	rows, inner := fmt.Sprint(m.M), fmt.Sprint(m.K)
	switch {
	case m.Ragged && m.TransA:
		inner = atMost(m.K)
	case m.Ragged:
		rows = atMost(m.M)
	}
	shape := fmt.Sprintf("%s×%d×%s%s", rows, m.N, inner, transposes(m.TransA, m.TransB))
	o.dev.time(s, key{"MatMul", shape}, 2*float64(m.M)*float64(m.N)*float64(m.K), func() { o.inner.MatMul(s, m) })
}

// atMost is the power of two at or above n ≥ 0, so that numbers that come from
// the data make few shapes.
func atMost(n int) string { return fmt.Sprintf("≤%d", 1<<bits.Len(uint(max(n, 1)-1))) }

func transposes(a, b bool) string {
	switch {
	case a && b:
		return " AᵀBᵀ"
	case a:
		return " AᵀB"
	case b:
		return " ABᵀ"
	}
	return " AB"
}

// attentionShape describes a, and the FLOPs of one of its products: causal, so
// half of a rectangle where every sequence is as long as the longest; 0, not
// known, where they are not.
func attentionShape(a device.AttentionShape) (shape string, product float64) {
	shape = fmt.Sprintf("%d seqs, %d heads of %d", a.Seqs, a.Heads, a.Dim)
	if a.TQ != a.Seqs*a.MaxQ || a.TK != a.TQ || a.Window != 0 {
		return shape, 0
	}
	return shape, float64(a.TQ) * float64(a.MaxK+1) * float64(a.Heads) * float64(a.Dim)
}

// Attention counts two products.
func (o ops) Attention(s device.Stream, a device.Attention) {
	shape, product := attentionShape(a.AttentionShape)
	o.dev.time(s, key{"Attention", shape}, 2*product, func() { o.inner.Attention(s, a) })
}

// AttentionBackward counts five products, however many a device does.
func (o ops) AttentionBackward(s device.Stream, a device.AttentionBackward) {
	shape, product := attentionShape(a.AttentionShape)
	o.dev.time(s, key{"AttentionBackward", shape}, 5*product, func() { o.inner.AttentionBackward(s, a) })
}

func (o ops) AddBiasGrad(s device.Stream, db, dy device.Tensor, T, N int) {
	o.plain(s, "AddBiasGrad", func() { o.inner.AddBiasGrad(s, db, dy, T, N) })
}

func (o ops) RMSNorm(s device.Stream, a device.RMSNorm) {
	o.plain(s, "RMSNorm", func() { o.inner.RMSNorm(s, a) })
}

func (o ops) RMSNormBackward(s device.Stream, a device.RMSNormBackward) {
	o.plain(s, "RMSNormBackward", func() { o.inner.RMSNormBackward(s, a) })
}

func (o ops) RoPE(s device.Stream, a device.RoPE) {
	o.plain(s, "RoPE", func() { o.inner.RoPE(s, a) })
}

func (o ops) GLU(s device.Stream, f device.Activation, y, gu device.Tensor, T, F int) {
	o.plain(s, "GLU", func() { o.inner.GLU(s, f, y, gu, T, F) })
}

func (o ops) GLUBackward(s device.Stream, f device.Activation, dgu, y, dy, gu device.Tensor, T, F int) {
	o.plain(s, "GLUBackward", func() { o.inner.GLUBackward(s, f, dgu, y, dy, gu, T, F) })
}

func (o ops) Scale(s device.Stream, x device.Tensor, n int64, factor float32) {
	o.plain(s, "Scale", func() { o.inner.Scale(s, x, n, factor) })
}

func (o ops) GatherRows(s device.Stream, dst, src, index device.Tensor, T, C int) {
	o.plain(s, "GatherRows", func() { o.inner.GatherRows(s, dst, src, index, T, C) })
}

func (o ops) ScatterAddRows(s device.Stream, drows, dy, start, pos device.Tensor, U, T, C int) {
	o.plain(s, "ScatterAddRows", func() { o.inner.ScatterAddRows(s, drows, dy, start, pos, U, T, C) })
}

func (o ops) ScaleRows(s device.Stream, a device.ScaleRows) {
	o.plain(s, "ScaleRows", func() { o.inner.ScaleRows(s, a) })
}

func (o ops) ScaleRowsBackward(s device.Stream, a device.ScaleRowsBackward) {
	o.plain(s, "ScaleRowsBackward", func() { o.inner.ScaleRowsBackward(s, a) })
}

func (o ops) AddRows(s device.Stream, dst, src, index device.Tensor, U, T, C int) {
	o.plain(s, "AddRows", func() { o.inner.AddRows(s, dst, src, index, U, T, C) })
}

func (o ops) Router(s device.Stream, a device.Router) {
	o.plain(s, "Router", func() { o.inner.Router(s, a) })
}

func (o ops) RouterBackward(s device.Stream, a device.RouterBackward) {
	o.plain(s, "RouterBackward", func() { o.inner.RouterBackward(s, a) })
}

func (o ops) SortByExpert(s device.Stream, a device.SortByExpert) {
	o.plain(s, "SortByExpert", func() { o.inner.SortByExpert(s, a) })
}

func (o ops) CrossEntropy(s device.Stream, a device.CrossEntropy) {
	o.plain(s, "CrossEntropy", func() { o.inner.CrossEntropy(s, a) })
}

func (o ops) CrossEntropyShard(s device.Stream, a device.CrossEntropyShard) {
	o.plain(s, "CrossEntropyShard", func() { o.inner.CrossEntropyShard(s, a) })
}

func (o ops) Convert(s device.Stream, dst, src device.Tensor, n int64) {
	o.plain(s, "Convert", func() { o.inner.Convert(s, dst, src, n) })
}
