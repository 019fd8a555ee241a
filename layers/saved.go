package layers

import "mt/device"

// SavedBytes is the device memory that Keep takes for one block and one
// micro-batch of so many tokens; 0 for KeepNothing. Needs no device.
func (s Spec) SavedBytes(tokens int) int64 {
	a := arena{dry: true}
	s.savedBuffers(newDims(s), s.Keep, tokens, &a)
	return a.used
}

// buffers are the intermediates of a block's launch. Some lie in the memory that
// is kept for the backward, the others in the workspace; see blockBuffers.
//
// Rows of all tokens:
//
//	o (T, H·D) act and lse (H, T) f32: attention's output and log-sum-exp
//	qkv (T, (H+2·KV)·D) act: q, k, v. Rotated; with q/k norm as they leave the
//	  product, and then rot, of the same row size, holds normed and rotated q, k
//	rstdQ (T, H), rstdK (T, KV) f32: of q/k norm
//	do (T, H·D), dqkv (T, (H+2·KV)·D) act: gradients of o and of q, k, v
//	delta (H, T) f32: scratch of attention's backward
//
// Rows of a chunk, except that KeepAll keeps x2 and gu of all tokens:
//
//	n (C, h) act, rstd (C) f32: a normed input, then its gradient
//	x2 (·, h) act: the MLP's residual input
//	gu (·, 2·F) act: gate and up, then their gradient
//	act (C, F) act: silu(gate)·up
type buffers struct {
	o, qkv, rot, rstdQ, rstdK, do, dqkv rows
	lse, delta                          device.Tensor
	n, rstd, x2, gu, act                rows
}

// savedBuffers takes what keep keeps from a; the rest stays none.
func (s Spec) savedBuffers(d dims, keep Keep, tokens int, a *arena) buffers {
	var b buffers
	if keep >= KeepAttention {
		b.o = a.wholeRows(d.act, tokens, d.q)
		b.lse = a.take(device.F32, tokens*d.heads)
	}
	if keep >= KeepQKV {
		b.qkv = a.wholeRows(d.act, tokens, d.qkv)
	}
	if keep >= KeepAll {
		b.x2 = a.wholeRows(d.act, tokens, d.hidden)
		b.gu = a.wholeRows(d.act, tokens, 2*d.ffn)
	}
	return b
}

// blockBuffers takes what keep keeps from saved and everything else that a
// launch needs from ws.
func (s Spec) blockBuffers(d dims, keep Keep, tokens int, backward bool, saved, ws *arena) buffers {
	b := s.savedBuffers(d, keep, tokens, saved)
	chunk := chunkOf(s.ChunkTokens, tokens)
	if keep < KeepAttention {
		b.o = ws.wholeRows(d.act, tokens, d.q)
		if backward {
			b.lse = ws.take(device.F32, tokens*d.heads)
		}
	}
	if keep < KeepQKV {
		b.qkv = ws.wholeRows(d.act, tokens, d.qkv)
	}
	if d.qkNorm {
		b.rot = ws.wholeRows(d.act, tokens, d.qkv)
	}
	if keep < KeepAll {
		b.gu = ws.chunkRows(d.act, chunk, 2*d.ffn)
	}
	b.n = ws.chunkRows(d.act, chunk, d.hidden)
	b.act = ws.chunkRows(d.act, chunk, d.ffn)
	if !backward {
		return b
	}
	if keep < KeepAll {
		b.x2 = ws.chunkRows(d.act, chunk, d.hidden)
	}
	if d.qkNorm {
		b.rstdQ = ws.wholeRows(device.F32, tokens, d.heads)
		b.rstdK = ws.wholeRows(device.F32, tokens, d.kvHeads)
	}
	b.rstd = ws.chunkRows(device.F32, chunk, 1)
	b.do = ws.wholeRows(d.act, tokens, d.q)
	b.dqkv = ws.wholeRows(d.act, tokens, d.qkv)
	b.delta = ws.take(device.F32, tokens*d.heads)
	return b
}
