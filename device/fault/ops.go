package fault

import "mt/device"

// ops counts every operation on the stream it is enqueued on.
type ops struct{ inner device.Ops }

func (o ops) MatMul(s device.Stream, m device.MatMul) {
	f := s.(*stream)
	f.do("MatMul", func() { o.inner.MatMul(f.Stream, m) })
}

func (o ops) AddBiasGrad(s device.Stream, db, dy device.Tensor, T, N int) {
	f := s.(*stream)
	f.do("AddBiasGrad", func() { o.inner.AddBiasGrad(f.Stream, db, dy, T, N) })
}

func (o ops) RMSNorm(s device.Stream, a device.RMSNorm) {
	f := s.(*stream)
	f.do("RMSNorm", func() { o.inner.RMSNorm(f.Stream, a) })
}

func (o ops) RMSNormBackward(s device.Stream, a device.RMSNormBackward) {
	f := s.(*stream)
	f.do("RMSNormBackward", func() { o.inner.RMSNormBackward(f.Stream, a) })
}

func (o ops) RoPE(s device.Stream, a device.RoPE) {
	f := s.(*stream)
	f.do("RoPE", func() { o.inner.RoPE(f.Stream, a) })
}

func (o ops) Attention(s device.Stream, a device.Attention) {
	f := s.(*stream)
	f.do("Attention", func() { o.inner.Attention(f.Stream, a) })
}

func (o ops) AttentionBackward(s device.Stream, a device.AttentionBackward) {
	f := s.(*stream)
	f.do("AttentionBackward", func() { o.inner.AttentionBackward(f.Stream, a) })
}

func (o ops) SwiGLU(s device.Stream, y, gu device.Tensor, T, F int) {
	f := s.(*stream)
	f.do("SwiGLU", func() { o.inner.SwiGLU(f.Stream, y, gu, T, F) })
}

func (o ops) SwiGLUBackward(s device.Stream, dgu, y, dy, gu device.Tensor, T, F int) {
	f := s.(*stream)
	f.do("SwiGLUBackward", func() { o.inner.SwiGLUBackward(f.Stream, dgu, y, dy, gu, T, F) })
}

func (o ops) GatherRows(s device.Stream, dst, src, index device.Tensor, T, C int) {
	f := s.(*stream)
	f.do("GatherRows", func() { o.inner.GatherRows(f.Stream, dst, src, index, T, C) })
}

func (o ops) ScatterAddRows(s device.Stream, drows, dy, start, pos device.Tensor, U, T, C int) {
	f := s.(*stream)
	f.do("ScatterAddRows", func() { o.inner.ScatterAddRows(f.Stream, drows, dy, start, pos, U, T, C) })
}

func (o ops) CrossEntropy(s device.Stream, a device.CrossEntropy) {
	f := s.(*stream)
	f.do("CrossEntropy", func() { o.inner.CrossEntropy(f.Stream, a) })
}

func (o ops) CrossEntropyShard(s device.Stream, a device.CrossEntropyShard) {
	f := s.(*stream)
	f.do("CrossEntropyShard", func() { o.inner.CrossEntropyShard(f.Stream, a) })
}

func (o ops) Convert(s device.Stream, dst, src device.Tensor, n int64) {
	f := s.(*stream)
	f.do("Convert", func() { o.inner.Convert(f.Stream, dst, src, n) })
}
