package fault

import "mt/device"

// ops counts every operation on the stream it is enqueued on.
type ops struct{ inner device.Ops }

func (o ops) MatMul(s device.Stream, m device.MatMul) {
	on := s.(*stream)
	on.do("MatMul", func() { o.inner.MatMul(on.Stream, m) })
}

func (o ops) AddBiasGrad(s device.Stream, db, dy device.Tensor, T, N int) {
	on := s.(*stream)
	on.do("AddBiasGrad", func() { o.inner.AddBiasGrad(on.Stream, db, dy, T, N) })
}

func (o ops) RMSNorm(s device.Stream, a device.RMSNorm) {
	on := s.(*stream)
	on.do("RMSNorm", func() { o.inner.RMSNorm(on.Stream, a) })
}

func (o ops) RMSNormBackward(s device.Stream, a device.RMSNormBackward) {
	on := s.(*stream)
	on.do("RMSNormBackward", func() { o.inner.RMSNormBackward(on.Stream, a) })
}

func (o ops) RoPE(s device.Stream, a device.RoPE) {
	on := s.(*stream)
	on.do("RoPE", func() { o.inner.RoPE(on.Stream, a) })
}

func (o ops) Attention(s device.Stream, a device.Attention) {
	on := s.(*stream)
	on.do("Attention", func() { o.inner.Attention(on.Stream, a) })
}

func (o ops) AttentionBackward(s device.Stream, a device.AttentionBackward) {
	on := s.(*stream)
	on.do("AttentionBackward", func() { o.inner.AttentionBackward(on.Stream, a) })
}

func (o ops) GLU(s device.Stream, f device.Activation, y, gu device.Tensor, T, F int) {
	on := s.(*stream)
	on.do("GLU", func() { o.inner.GLU(on.Stream, f, y, gu, T, F) })
}

func (o ops) GLUBackward(s device.Stream, f device.Activation, dgu, y, dy, gu device.Tensor, T, F int) {
	on := s.(*stream)
	on.do("GLUBackward", func() { o.inner.GLUBackward(on.Stream, f, dgu, y, dy, gu, T, F) })
}

func (o ops) Scale(s device.Stream, x device.Tensor, n int64, factor float32) {
	on := s.(*stream)
	on.do("Scale", func() { o.inner.Scale(on.Stream, x, n, factor) })
}

func (o ops) GatherRows(s device.Stream, dst, src, index device.Tensor, T, C int) {
	on := s.(*stream)
	on.do("GatherRows", func() { o.inner.GatherRows(on.Stream, dst, src, index, T, C) })
}

func (o ops) ScatterAddRows(s device.Stream, drows, dy, start, pos device.Tensor, U, T, C int) {
	on := s.(*stream)
	on.do("ScatterAddRows", func() { o.inner.ScatterAddRows(on.Stream, drows, dy, start, pos, U, T, C) })
}

func (o ops) ScaleRows(s device.Stream, a device.ScaleRows) {
	on := s.(*stream)
	on.do("ScaleRows", func() { o.inner.ScaleRows(on.Stream, a) })
}

func (o ops) ScaleRowsBackward(s device.Stream, a device.ScaleRowsBackward) {
	on := s.(*stream)
	on.do("ScaleRowsBackward", func() { o.inner.ScaleRowsBackward(on.Stream, a) })
}

func (o ops) AddRows(s device.Stream, dst, src, index device.Tensor, U, T, C int) {
	on := s.(*stream)
	on.do("AddRows", func() { o.inner.AddRows(on.Stream, dst, src, index, U, T, C) })
}

func (o ops) Router(s device.Stream, a device.Router) {
	on := s.(*stream)
	on.do("Router", func() { o.inner.Router(on.Stream, a) })
}

func (o ops) RouterBackward(s device.Stream, a device.RouterBackward) {
	on := s.(*stream)
	on.do("RouterBackward", func() { o.inner.RouterBackward(on.Stream, a) })
}

func (o ops) SortByExpert(s device.Stream, a device.SortByExpert) {
	on := s.(*stream)
	on.do("SortByExpert", func() { o.inner.SortByExpert(on.Stream, a) })
}

func (o ops) CrossEntropy(s device.Stream, a device.CrossEntropy) {
	on := s.(*stream)
	on.do("CrossEntropy", func() { o.inner.CrossEntropy(on.Stream, a) })
}

func (o ops) CrossEntropyShard(s device.Stream, a device.CrossEntropyShard) {
	on := s.(*stream)
	on.do("CrossEntropyShard", func() { o.inner.CrossEntropyShard(on.Stream, a) })
}

func (o ops) Convert(s device.Stream, dst, src device.Tensor, n int64) {
	on := s.(*stream)
	on.do("Convert", func() { o.inner.Convert(on.Stream, dst, src, n) })
}
