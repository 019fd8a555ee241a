package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// withMLP and withoutMLP are the values of a parameter mlp: the launch has the whole decoder block, or only its
// attention.
const withMLP, withoutMLP = true, false

// savedBytes returns the device memory that keep takes for one layer and one micro-batch of the given tokens; 0 for
// KeepNothing. mlp says whether the layer has an MLP or only attention. The computation needs no device.
func (s Spec) savedBytes(d dims, mlp bool, keep Keep, tokens int) int64 {
	a := allotter{dry: true}
	s.savedBuffers(d, mlp, keep, tokens, &a)
	if d.beside {
		s.savedBuffers(d.besides(), withoutMLP, min(keep, KeepAll), tokens, &a)
	}
	return a.used
}

// buffers are the intermediate tensors of a block's launch. Some are in the memory kept for the
// backward, the others in the workspace; see blockBuffers. C is the number of tokens in a chunk, F
// the MLP's width, and G the number of query heads that share a key/value head.
//
// Rows of all tokens:
//
//	o (T, H·D) act and lse (H, T) f32: attention's output and log-sum-exp. Widths of absorbed latent
//	  attention are in absorbed.go
//	qkv (T, (H+2·KV)·D) act: q, k, v, and an output gate at the end if there is one; q and k are
//	  rotated. With q/k norm, qkv has them before norm and rotation, and rot (T, (H+2·KV)·D) has
//	  normed and rotated q, k, and normed v. If values are keys, qkv has no columns of v
//	rstdQ (T, H), rstdK, rstdV (T, KV) f32: of these norms; one per token if the norm of q and k is
//	  over all heads
//	do (T, H·D), dqkv (T, (H+2·KV)·D) act: gradients of o and of q, k, v
//	delta (H, T) f32, sums f32: scratch of attention's backward
//
// Rows of a chunk, except that KeepAll keeps x2 and gu of all tokens, and KeepInputs act:
//
//	n (C, h) act, rstd (C) f32: a normed input, then its gradient; if outputs are normed, in
//	  the forward also an output before its norm. For a LayerNorm rstd is (C, 2): mean and rstd.
//	  KeepInputs has attnIn and mlpIn (T, h) instead, each with its rstd (T)
//	x2 (·, h) act: the MLP's residual input, which a parallel block's backward does not need
//	gu (·, 2·F) act: gate and up, then their gradient; without a gate (·, F)
//	act (C, F) act: f(gate)·up, or f(up)
//	zeros (C) i32: with a layer scalar or shared keys and values
//
// Rows of a chunk in the backward, if values are keys:
//
//	draw (C, (H+KV)·D) act: the gradient of qkv
//
// Rows of a chunk in the backward, if outputs are normed:
//
//	a (C, h) act: attention's output before its norm
//	out, dout (C, h) act, rstdOut (C) f32: the current output before its norm, its gradient,
//	  its norm's scale
//
// With Spec.OnHost rows of all tokens become rows of a chunk in attention, except lse (H, T) and
// delta (G, T). The inputs and outputs of attention are then in group, see groups.go. A recurrence
// keeps rows of all tokens.
type buffers struct {
	o, qkv, rot, rstdQ, rstdK, rstdV rows
	do, dqkv, draw                   rows
	lse, delta, sums                 device.Tensor
	n, rstd, x2, gu, act, zeros      rows
	attnIn, mlpIn                    normedRows // kept; mlpIn is none if one norm serves both
	a, out, dout, rstdOut            rows
	mla                              mlaBuffers   // mla.go
	index                            indexBuffers // indexer.go
	gdn                              gdnBuffers   // gated_delta_net.go
	ssd                              ssdBuffers   // mamba2.go
	kda                              kdaBuffers   // kda.go
	gate                             gateBuffers  // output_gate.go
	group                            groupBuffers
	in, io                           rows            // (C, h) act: with Spec.OnHost a chunk of the input, and of the output or its gradient
	side                             *buffers        // of the mixer beside attention
	per                              perLayerBuffers // per_layer.go
	kv                               rows            // (C, 2·KV·D) act: keys and values between a packed row and a passenger, passengers.go
}

// savedBuffers takes from mem the buffers that the forward keeps at level keep. The other fields of the result are
// none.
func (s Spec) savedBuffers(d dims, mlp bool, keep Keep, tokens int, mem *allotter) buffers {
	var b buffers
	if keep >= KeepAttention {
		b.o = mem.wholeRows(d.act, tokens, d.o)
		if d.recurrent {
			d.recurrence.keepStates(&b, d, tokens, mem)
		} else {
			b.lse = mem.take(device.F32, tokens*d.heads)
			if d.indexer != nil {
				b.index.takeChoice(d.indexer, tokens, mem)
			}
		}
	}
	if keep >= KeepQKV {
		b.qkv = mem.wholeRows(d.act, tokens, d.raw)
		if d.recurrent {
			d.recurrence.keepInputs(&b, d, tokens, mem)
		}
	}
	if keep >= KeepAll && mlp {
		if !d.parallel {
			b.x2 = mem.wholeRows(d.act, tokens, d.hidden)
		}
		b.gu = mem.wholeRows(d.act, tokens, d.up)
	}
	if keep >= KeepInputs {
		b.attnIn = d.keepNormed(tokens, mem)
		if mlp {
			s.keepMLPInputs(&b, d, tokens, mem)
		}
	}
	return b
}

// normedRows are the rows y (·, h) act of a normed input and rstd (·, dims.stats) f32 of the norm's statistics.
type normedRows struct{ y, rstd rows }

// keepNormed takes from mem the rows of a normed input; none if the model does not norm inputs.
func (d dims) keepNormed(tokens int, mem *allotter) (n normedRows) {
	if d.normIn {
		n = normedRows{mem.wholeRows(d.act, tokens, d.hidden), mem.wholeRows(device.F32, tokens, d.stats)}
	}
	return n
}

// keepMLPInputs takes from mem the inputs of the MLP's products that KeepInputs keeps. xIELU's backward writes the
// activation in any case.
func (s Spec) keepMLPInputs(b *buffers, d dims, tokens int, mem *allotter) {
	if !s.Config.SharedNorm {
		b.mlpIn = d.keepNormed(tokens, mem)
	}
	if s.Config.Activation != model.XIELU {
		b.act = mem.wholeRows(d.act, tokens, d.ffn)
	}
}

// blockBuffers returns the buffers of a launch of a decoder block or of its attention. Buffers that the forward keeps
// at level keep are taken from saved, the others from ws. mlp says whether the launch has the whole block; backward
// says whether it needs the backward's buffers too.
func (s Spec) blockBuffers(d dims, mlp bool, keep Keep, tokens int, backward bool, saved, ws *allotter) buffers {
	b := s.mixerBuffers(d, mlp, keep, tokens, backward, saved, ws)
	s.stateBuffers(&b, d, chunkOf(s.ChunkTokens, tokens), ws)
	if d.beside {
		side := s.mixerBuffers(d.besides(), withoutMLP, min(keep, KeepAll), tokens, backward, saved, ws)
		side.attnIn = b.attnIn // the same norm
		b.side = &side
	}
	return b
}

// stateBuffers takes from ws the buffers for chunks of hidden states, if these are on the host.
func (s Spec) stateBuffers(b *buffers, d dims, chunk int, ws *allotter) {
	if s.OnHost {
		b.in, b.io = ws.chunkRows(d.act, chunk, d.hidden), ws.chunkRows(d.act, chunk, d.hidden)
	}
}

// mixerBuffers returns the same buffers for a launch whose input and output are in other memory, without a recurrence
// beside attention.
func (s Spec) mixerBuffers(d dims, mlp bool, keep Keep, tokens int, backward bool, saved, ws *allotter) buffers {
	b := s.savedBuffers(d, mlp, keep, tokens, saved)
	chunk := chunkOf(s.ChunkTokens, tokens)
	if keep < KeepAttention {
		b.o = s.tallRows(d, ws, d.act, tokens, d.o)
		if !d.recurrent && (backward || d.sinks) {
			b.lse = ws.take(device.F32, tokens*d.heads)
		}
	}
	if keep < KeepQKV {
		b.qkv = s.tallRows(d, ws, d.act, tokens, d.raw)
	}
	if d.qkNorm {
		b.rot = s.tallRows(d, ws, d.act, tokens, d.qkv)
	}
	if d.groups {
		b.group = s.takeGroup(d, tokens, backward, ws)
	}
	if d.recurrent {
		d.recurrence.buffers(s, &b, d, keep, tokens, backward, ws)
	}
	if d.gated {
		b.gate.both, b.gate.narrow = ws.chunkRows(d.act, chunk, 2*d.out), ws.chunkRows(d.act, chunk, d.out)
		if d.groups {
			b.gate.z = ws.chunkRows(d.act, chunk, d.out)
			b.gate.dz = b.gate.z
		}
	}
	if d.mla != nil {
		b.mla = s.mlaBuffers(d, tokens, backward, ws)
	}
	if x := d.indexer; x != nil {
		if keep < KeepAttention {
			b.index.takeChoice(x, tokens, ws)
		}
		if keep < KeepAttention || !backward {
			b.index.take(x, d.act, tokens, ws)
		}
	}
	if d.normIn || !backward {
		b.n = ws.chunkRows(d.act, chunk, d.hidden)
	}
	if mlp {
		if keep < KeepAll {
			b.gu = ws.chunkRows(d.act, chunk, d.up)
		}
		if b.act.width == 0 {
			b.act = ws.chunkRows(d.act, chunk, d.ffn)
		}
		if s.Config.LayerScalar || d.shared || d.lends {
			b.zeros = ws.chunkRows(device.I32, chunk, 1)
		}
		b.per = s.perLayerBuffers(d, chunk, backward, ws)
	}
	if backward && (d.shared || d.lends) {
		b.kv = ws.chunkRows(d.act, chunk, 2*d.kv)
	}
	if backward {
		s.backwardBuffers(&b, d, mlp, keep, tokens, ws)
	}
	return b
}

// backwardBuffers takes from ws the buffers of b that only a backward needs, in addition to the
// forward's buffers. mlp: the launch runs the block's MLP too, not attention alone.
func (s Spec) backwardBuffers(b *buffers, d dims, mlp bool, keep Keep, tokens int, ws *allotter) {
	chunk := chunkOf(s.ChunkTokens, tokens)
	if keep < KeepAll && mlp && !d.parallel {
		b.x2 = ws.chunkRows(d.act, chunk, d.hidden)
	}
	if d.normOut {
		b.a, b.out, b.dout = ws.chunkRows(d.act, chunk, d.hidden), ws.chunkRows(d.act, chunk, d.hidden), ws.chunkRows(d.act, chunk, d.hidden)
		b.rstdOut = ws.chunkRows(device.F32, chunk, 1)
	}
	if d.qkNorm {
		b.rstdQ = s.tallRows(d, ws, device.F32, tokens, d.qGroups)
		b.rstdK = s.tallRows(d, ws, device.F32, tokens, d.kGroups)
	}
	if d.normsV {
		b.rstdV = s.tallRows(d, ws, device.F32, tokens, d.kvHeads)
	}
	if d.raw < d.qkv {
		b.draw = ws.chunkRows(d.act, chunk, d.raw)
	}
	if d.normIn {
		b.rstd = ws.chunkRows(device.F32, chunk, d.stats)
	}
	b.do = s.tallRows(d, ws, d.act, tokens, d.o)
	b.dqkv = s.tallRows(d, ws, d.act, tokens, d.qkv)
	if d.recurrent {
		return
	}
	a := op.AttentionShape{TQ: tokens, TK: tokens, Heads: d.heads, KVHeads: d.kvHeads, Dim: d.headDim, Softcap: float32(s.Config.AttnSoftcap)}
	if d.groups {
		a.Heads, a.KVHeads = d.heads/d.kvHeads, 1
	}
	b.delta = ws.take(device.F32, tokens*a.Heads)
	if d.indexer != nil {
		b.sums = ws.take(device.F32, (&op.SparseShape{AttentionShape: a}).SumsLen())
	} else if n := a.SumsLen(); s.Fused && d.act == device.BF16 && n > 0 {
		b.sums = ws.take(device.F32, n)
	}
}
