package layers

import "mt/device"

// EmbedForward overwrites x (T, h) act with the rows of the micro-batch's
// tokens.
//
//	table (U, h) act: the embedding rows of the batch's unique ids, in id order
//
// Enqueues on s; needs no workspace.
func (t *Templates) EmbedForward(s device.Stream, x, table device.Tensor, mb MicroBatch) {
	t.spec.fits(mb.Tokens)
	t.ops.GatherRows(s, x, table, mb.Index, mb.Tokens, t.dims.hidden)
}

// EmbedBackward accumulates the gradient of the batch's embedding rows: each
// row adds dx of its places in rising order.
//
//	dtable (U, h) f32, overwritten where first is set; dx (T, h) act
//
// Enqueues on s; needs no workspace.
func (t *Templates) EmbedBackward(s device.Stream, dtable, dx device.Tensor, mb MicroBatch, first bool) {
	t.spec.fits(mb.Tokens)
	if first {
		s.Zero(dtable.Slice(0, int64(mb.UniqueRows)*int64(t.dims.hidden)).Mem())
	}
	t.ops.ScatterAddRows(s, dtable, dx, mb.RowStart, mb.RowPos, mb.UniqueRows, mb.Tokens, t.dims.hidden)
}
