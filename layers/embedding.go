package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/internal/bfloat"
)

// EmbedForward overwrites x (T, h) act with the rows of the micro-batch's
// tokens, scaled where the model does.
//
//	table (U, h) act: the embedding rows of the batch's unique ids, in id order
//
// Enqueues on s; needs no workspace.
func (t *Templates) EmbedForward(s device.Stream, x, table device.Tensor, mb MicroBatch) {
	t.spec.fits(mb.Tokens)
	op.Do(t.dev, s, op.GatherRows{Dst: x, Src: table, Index: mb.Index, T: mb.Tokens, C: t.dims.hidden})
	t.scaleEmbedding(s, x, mb)
}

// scaleEmbedding multiplies x (T, h) by Config.EmbedScale, rounded to the type of
// the weights as Transformers rounds it.
func (t *Templates) scaleEmbedding(s device.Stream, x device.Tensor, mb MicroBatch) {
	scale := float32(t.spec.Config.EmbedScale)
	if scale == 0 {
		return
	}
	if t.dims.act == device.BF16 {
		scale = bfloat.Widen(bfloat.Round(scale))
	}
	op.Do(t.dev, s, op.Scale{X: x, N: int64(mb.Tokens) * int64(t.dims.hidden), Factor: scale})
}

// EmbedBackward accumulates the gradient of the batch's embedding rows: each
// row adds dx of its places in rising order.
//
//	dtable (U, h) f32, overwritten where first is set; dx (T, h) act, used up
//
// Enqueues on s; needs no workspace.
func (t *Templates) EmbedBackward(s device.Stream, dtable, dx device.Tensor, mb MicroBatch, first bool) {
	t.spec.fits(mb.Tokens)
	t.scaleEmbedding(s, dx, mb)
	if first {
		s.Zero(dtable.Slice(0, int64(mb.UniqueRows)*int64(t.dims.hidden)).Mem())
	}
	op.Do(t.dev, s, op.ScatterAddRows{DRows: dtable, DY: dx, Start: mb.RowStart, Pos: mb.RowPos, U: mb.UniqueRows, T: mb.Tokens, C: t.dims.hidden})
}
