package layers

import (
	"cmp"
	"math"

	"mt/base/bf16"
	"mt/device"
	"mt/device/op"
)

// EmbedForward overwrites x (T, h) act with the embedding rows of the micro-batch's tokens, normed or scaled if the model
// does so, and adds Spec.Noise in training.
//
//	table (U, h) act: the embedding rows of the batch's unique ids, in id order
//	step: the training step, from 1 on, which seeds the noise; 0: no noise
//	ws: needed if x is on the host
func (t *Templates) EmbedForward(s device.Stream, x Hidden, table device.Tensor, mb MicroBatch, step int, ws device.Mem) {
	t.spec.fits(mb.Tokens)
	y := t.hidden(x, t.spec.embedSpace(t.dims, mb.Tokens, false, &allotter{mem: ws}).x)
	for c := range t.embedChunks(mb.Tokens) {
		op.Do(t.dev, s, op.GatherRows{Dst: y.of(c), Src: table, Index: whole(mb.Index, 1).of(c), T: c.n, C: t.dims.hidden})
		if t.spec.Config.EmbedNorm {
			op.Do(t.dev, s, t.embedNorm(y.of(c), device.Tensor{}, y.of(c), c.n))
		}
		t.scaleEmbedding(s, y.of(c), c.n)
		t.addNoise(s, y.of(c), c, mb, step)
		store(s, c, y)
	}
	if t.spec.Config.Ahead > 0 {
		s.CopyD2D(t.passengersOf(mb, x.Dev).Mem(), y.of(span{0, mb.Tokens}).Mem())
	}
}

// embedNorm returns the norm of n rows of the embedding (Config.EmbedNorm), whose weights are ones.
func (t *Templates) embedNorm(y, rstd, x device.Tensor, n int) op.RMSNorm {
	a := t.rmsNorm(y, rstd, x, t.onesOf(t.dims.hidden), n)
	a.Offset = 0
	return a
}

// embedNormBackward replaces dx, the gradient of the normed rows of chunk c, by the gradient of the rows before the norm.
// table has the embedding's rows.
func (t *Templates) embedNormBackward(s device.Stream, b embedSpace, dx, table device.Tensor, mb MicroBatch, c span) {
	x, rstd := b.rowsOf.of(c), b.rstd.of(c)
	op.Do(t.dev, s, op.GatherRows{Dst: x, Src: table, Index: whole(mb.Index, 1).of(c), T: c.n, C: t.dims.hidden})
	op.Do(t.dev, s, t.embedNorm(b.normed.of(c), rstd, x, c.n))
	a := t.rmsNormBackward(dx, device.Tensor{}, dx, x, t.onesOf(t.dims.hidden), rstd, c.n)
	a.Offset = 0
	op.Do(t.dev, s, a)
}

// embedSpace is the embedding's workspace; it is empty unless hidden states are on the host or the embedding is normed.
// C is the number of tokens in a chunk, and P the number of columns that are processed at once.
//
//	x (C, h) act: the current chunk
//	dy (T, P) act, rows (V, P) f32: P columns of the gradient, and of the rows' gradient; only
//	  in the backward
//	rowsOf, normed (C, h) act, rstd (C) f32: with a norm in the backward, the tokens' rows, normed, and the norm's
//	  statistics
type embedSpace struct {
	x, dy                rows
	rows                 device.Tensor
	rowsOf, normed, rstd rows
}

func (s Spec) embedSpace(d dims, tokens int, backward bool, ws *allotter) (b embedSpace) {
	chunk := chunkOf(s.ChunkTokens, tokens)
	if backward && s.Config.EmbedNorm {
		b.rowsOf, b.normed, b.rstd = ws.chunkRows(d.act, chunk, d.hidden), ws.chunkRows(d.act, chunk, d.hidden), ws.chunkRows(device.F32, chunk, 1)
	}
	if !s.OnHost {
		return b
	}
	b.x = ws.chunkRows(d.act, chunk, d.hidden)
	if backward {
		b.dy = ws.wholeRows(d.act, tokens, d.embedPart())
		b.rows = ws.take(device.F32, d.vocab*d.embedPart())
	}
	return b
}

// embedPart returns the width in columns of one part of the embedding's gradient, which is summed part by part if
// hidden states are on the host. There are as many parts as groups of key/value heads, so a part takes no more memory
// than a group in a block. The result is a multiple of 8, or the hidden size.
func (d dims) embedPart() int {
	n := (d.hidden + d.kvHeads - 1) / d.kvHeads
	return min(d.hidden, (n+7)/8*8)
}

// embedChunks returns an iterator over the chunks of tokens that are processed at once. If hidden states are on the
// device, one chunk has all tokens.
func (t *Templates) embedChunks(tokens int) func(func(span) bool) {
	if !t.spec.OnHost {
		return spans(tokens, tokens)
	}
	return spans(tokens, chunkOf(t.spec.ChunkTokens, tokens))
}

// scaleEmbedding multiplies x (n, h) by Config.EmbedScale / Config.ResidualScale (see Templates.residualUnit).
func (t *Templates) scaleEmbedding(s device.Stream, x device.Tensor, n int) {
	c := t.spec.Config
	scale := float32(cmp.Or(c.EmbedScale, 1) / t.residualUnit())
	if c.EmbedRounded && t.dims.act == device.BF16 {
		scale = bf16.Widen(bf16.Round(scale))
	}
	t.scale(s, x, n, scale)
}

// addNoise adds the NEFTune noise of a training step to x, chunk c of the micro-batch. Transformers adds it to the
// output of the embedding module (integrations/neftune.py). A rounded scale (Config.EmbedRounded) is part of that
// module. Any other scale comes later and would multiply the noise too, so addNoise multiplies the noise by it.
func (t *Templates) addNoise(s device.Stream, x device.Tensor, c span, mb MicroBatch, step int) {
	noise, cfg := t.spec.Noise, t.spec.Config
	if noise.Alpha == 0 || step == 0 {
		return
	}
	scale := float64(noise.Alpha) / math.Sqrt(float64(t.dims.hidden)) / t.residualUnit()
	if !cfg.EmbedRounded {
		scale *= cmp.Or(cfg.EmbedScale, 1)
	}
	op.Do(t.dev, s, op.AddNoise{X: x, Cu: mb.Cu, T: c.n, C: t.dims.hidden, Seqs: mb.Seqs, From: c.at, First: mb.First, Step: step,
		Seed: noise.Seed, Scale: float32(scale)})
}

// scale multiplies x (n, h) act by factor.
func (t *Templates) scale(s device.Stream, x device.Tensor, n int, factor float32) {
	if factor != 1 {
		op.Do(t.dev, s, op.Scale{X: x, N: int64(n) * int64(t.dims.hidden), Factor: factor})
	}
}

// EmbedBackward accumulates the gradient of the batch's embedding rows; U is the number of unique ids. Each row sums dx
// over the row's tokens, from the first token to the last.
//
//	dtable (U, h) f32, overwritten if first is set; dx (T, h) act, undefined afterwards; table (U, h) act: the rows
//	ws: needed if dx is on the host or the embedding is normed
func (t *Templates) EmbedBackward(s device.Stream, dtable, table device.Tensor, dx Hidden, mb MicroBatch, ws device.Mem, first bool) {
	t.spec.fits(mb.Tokens)
	if t.spec.OnHost {
		t.embedBackwardInParts(s, dtable, table, dx, mb, ws, first)
		return
	}
	if t.spec.Config.Ahead > 0 {
		all := whole(dx.Dev, t.dims.hidden).of(span{0, mb.Tokens})
		op.Do(t.dev, s, op.AddPositions{Y: all, X: all, Table: t.passengersOf(mb, dx.Dev), Pos: mb.Previous, T: mb.Tokens, C: t.dims.hidden})
	}
	t.scaleEmbedding(s, dx.Dev, mb.Tokens)
	if t.spec.Config.EmbedNorm {
		b := t.spec.embedSpace(t.dims, mb.Tokens, true, &allotter{mem: ws})
		for c := range spans(mb.Tokens, chunkOf(t.spec.ChunkTokens, mb.Tokens)) {
			t.embedNormBackward(s, b, whole(dx.Dev, t.dims.hidden).of(c), table, mb, c)
		}
	}
	if first {
		s.Zero(dtable.Slice(0, int64(mb.UniqueRows)*int64(t.dims.hidden)).Mem())
	}
	op.Do(t.dev, s, op.ScatterAddRows{DRows: dtable, DY: dx.Dev, Start: mb.RowStart, Pos: mb.RowPos, U: mb.UniqueRows, T: mb.Tokens, C: t.dims.hidden})
}

// embedBackwardInParts is EmbedBackward for dx on the host; it processes one range of columns after the other. A row of
// the table sums tokens from anywhere in the micro-batch, so chunks of tokens cannot be summed alone. Columns are
// independent.
func (t *Templates) embedBackwardInParts(s device.Stream, dtable, table device.Tensor, dx Hidden, mb MicroBatch, ws device.Mem, first bool) {
	b, h, U := t.spec.embedSpace(t.dims, mb.Tokens, true, &allotter{mem: ws}), t.dims.hidden, mb.UniqueRows
	x := t.hidden(dx, b.x)
	copyColumns := func(dst, src device.Tensor, rows, n, dstStride, srcStride int) {
		op.Do(t.dev, s, op.CopyColumns{Dst: dst, Src: src, T: rows, C: n, DstStride: dstStride, SrcStride: srcStride})
	}
	for part := range spans(h, b.dy.width) {
		for c := range t.embedChunks(mb.Tokens) {
			fetch(s, c, x)
			t.scaleEmbedding(s, x.of(c), c.n)
			if t.spec.Config.EmbedNorm {
				t.embedNormBackward(s, b, x.of(c), table, mb, c)
			}
			copyColumns(whole(b.dy.t, part.n).of(c), from(x.of(c), part.at), c.n, part.n, part.n, h)
		}
		if sum := b.rows.Slice(0, int64(U)*int64(part.n)); first {
			s.Zero(sum.Mem())
		} else {
			copyColumns(sum, from(dtable, part.at), U, part.n, part.n, h)
		}
		op.Do(t.dev, s, op.ScatterAddRows{DRows: b.rows, DY: b.dy.t, Start: mb.RowStart, Pos: mb.RowPos, U: U, T: mb.Tokens, C: part.n})
		copyColumns(from(dtable, part.at), b.rows, U, part.n, h, part.n)
	}
}
