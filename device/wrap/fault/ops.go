package fault

import "mt/device"

// ops counts every operation on the stream it is enqueued on.
type ops struct{ inner device.Ops }

// do counts the operation named and enqueues it on the stream within s.
func do(s device.Stream, name string, enqueue func(device.Stream)) {
	on := s.(*stream)
	on.do(name, func() { enqueue(on.Stream) })
}

func (o ops) MatMul(s device.Stream, m device.MatMul) {
	do(s, "MatMul", func(s device.Stream) { o.inner.MatMul(s, m) })
}

func (o ops) AddBiasGrad(s device.Stream, db, dy device.Tensor, T, N int) {
	do(s, "AddBiasGrad", func(s device.Stream) { o.inner.AddBiasGrad(s, db, dy, T, N) })
}

func (o ops) RMSNorm(s device.Stream, a device.RMSNorm) {
	do(s, "RMSNorm", func(s device.Stream) { o.inner.RMSNorm(s, a) })
}

func (o ops) RMSNormBackward(s device.Stream, a device.RMSNormBackward) {
	do(s, "RMSNormBackward", func(s device.Stream) { o.inner.RMSNormBackward(s, a) })
}

func (o ops) RoPE(s device.Stream, a device.RoPE) {
	do(s, "RoPE", func(s device.Stream) { o.inner.RoPE(s, a) })
}

func (o ops) Attention(s device.Stream, a device.Attention) {
	do(s, "Attention", func(s device.Stream) { o.inner.Attention(s, a) })
}

func (o ops) AttentionBackward(s device.Stream, a device.AttentionBackward) {
	do(s, "AttentionBackward", func(s device.Stream) { o.inner.AttentionBackward(s, a) })
}

func (o ops) GLU(s device.Stream, f device.Activation, y, gu device.Tensor, T, F int) {
	do(s, "GLU", func(s device.Stream) { o.inner.GLU(s, f, y, gu, T, F) })
}

func (o ops) GLUBackward(s device.Stream, f device.Activation, dgu, y, dy, gu device.Tensor, T, F int) {
	do(s, "GLUBackward", func(s device.Stream) { o.inner.GLUBackward(s, f, dgu, y, dy, gu, T, F) })
}

func (o ops) Scale(s device.Stream, x device.Tensor, n int64, factor float32) {
	do(s, "Scale", func(s device.Stream) { o.inner.Scale(s, x, n, factor) })
}

func (o ops) GatherRows(s device.Stream, dst, src, index device.Tensor, T, C int) {
	do(s, "GatherRows", func(s device.Stream) { o.inner.GatherRows(s, dst, src, index, T, C) })
}

func (o ops) ScatterAddRows(s device.Stream, drows, dy, start, pos device.Tensor, U, T, C int) {
	do(s, "ScatterAddRows", func(s device.Stream) { o.inner.ScatterAddRows(s, drows, dy, start, pos, U, T, C) })
}

func (o ops) ScaleRows(s device.Stream, a device.ScaleRows) {
	do(s, "ScaleRows", func(s device.Stream) { o.inner.ScaleRows(s, a) })
}

func (o ops) ScaleRowsBackward(s device.Stream, a device.ScaleRowsBackward) {
	do(s, "ScaleRowsBackward", func(s device.Stream) { o.inner.ScaleRowsBackward(s, a) })
}

func (o ops) AddRows(s device.Stream, dst, src, index device.Tensor, U, T, C int) {
	do(s, "AddRows", func(s device.Stream) { o.inner.AddRows(s, dst, src, index, U, T, C) })
}

func (o ops) Router(s device.Stream, a device.Router) {
	do(s, "Router", func(s device.Stream) { o.inner.Router(s, a) })
}

func (o ops) RouterBackward(s device.Stream, a device.RouterBackward) {
	do(s, "RouterBackward", func(s device.Stream) { o.inner.RouterBackward(s, a) })
}

func (o ops) SortByExpert(s device.Stream, a device.SortByExpert) {
	do(s, "SortByExpert", func(s device.Stream) { o.inner.SortByExpert(s, a) })
}

func (o ops) CrossEntropy(s device.Stream, a device.CrossEntropy) {
	do(s, "CrossEntropy", func(s device.Stream) { o.inner.CrossEntropy(s, a) })
}

func (o ops) CrossEntropyShard(s device.Stream, a device.CrossEntropyShard) {
	do(s, "CrossEntropyShard", func(s device.Stream) { o.inner.CrossEntropyShard(s, a) })
}

func (o ops) Convert(s device.Stream, dst, src device.Tensor, n int64) {
	do(s, "Convert", func(s device.Stream) { o.inner.Convert(s, dst, src, n) })
}
