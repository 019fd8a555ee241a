package layers

import (
	"mt/device"
	"mt/device/op"
)

// This file has the attention of a block where hidden states lie on the host (Spec.OnHost).
// Then the device has one group of key/value heads at a time, of all tokens: its queries,
// keys, values and output, in the backward also their gradients. Those of the other groups
// wait on the host. Products see chunks of tokens with all heads, as ever. So every
// operation gets the operands that it gets where everything lies on the device, and gives
// the same bits: heads of different groups never meet in a sum but in products.
//
// On the host, in Spec.Scratch, a group's rows follow each other, and groups follow each
// other (G = H/KV query heads share a key head):
//
//	qkv (KV, T, (G+2)·D) act: normed and rotated q and k, and v; in the backward then
//	  their gradients
//	o, do (KV, T, G·D) act

// groupBuffers are what a launch has of a group on the device.
//
//	qkv, dqkv (T, (G+2)·D), o, do (T, G·D) act: of the group at work; the gradients in the
//	  backward only
//	pack (C, (G+2)·D) act: rows of a chunk on their way between host and device
//	in, io (C, h) act: a chunk of the layer's input; of its output or of the gradient
type groupBuffers struct{ qkv, dqkv, o, do, pack, in, io rows }

// perGroup is how many columns a group has of packed rows and of outputs.
func (d dims) perGroup() (qkv, q int) {
	q = d.q / d.kvHeads
	return q + 2*d.headDim, q
}

// takeGroup takes the buffers of a group from ws.
func (s Spec) takeGroup(d dims, tokens int, backward bool, ws *allotter) groupBuffers {
	qkv, q := d.perGroup()
	chunk := chunkOf(s.ChunkTokens, tokens)
	b := groupBuffers{qkv: ws.wholeRows(d.act, tokens, qkv), o: ws.wholeRows(d.act, tokens, q),
		pack: ws.chunkRows(d.act, chunk, qkv), in: ws.chunkRows(d.act, chunk, d.hidden), io: ws.chunkRows(d.act, chunk, d.hidden)}
	if backward {
		b.dqkv, b.do = ws.wholeRows(d.act, tokens, qkv), ws.wholeRows(d.act, tokens, q)
	}
	return b
}

// ScratchBytes is the host memory that launches need beside the hidden states, with OnHost, of
// MaxTokens tokens; else it is 0. It needs no device.
func (s Spec) ScratchBytes(backward bool) int64 {
	if !s.OnHost {
		return 0
	}
	return s.scratch(newDims(s), s.MaxTokens, backward, nil).bytes
}

// scratch is what waits on the host of a launch; do has the backward alone.
type scratch struct {
	qkv, o, do waiting
	bytes      int64
}

// waiting are rows of all groups on the host, one group after the other.
type waiting struct {
	host    []byte
	group   int64 // bytes of a group
	row     int64 // bytes of a row of a group
	columns func(group int) []columns
}

// columns are the columns from at on of rows that have all heads, which are those from
// inGroup on of a group's rows.
type columns struct{ at, inGroup, n int }

// scratch cuts host, which may be nil to find the sizes alone.
func (s Spec) scratch(d dims, tokens int, backward bool, host []byte) scratch {
	qkv, q := d.perGroup()
	var f scratch
	take := func(width int, of func(int) []columns) waiting {
		w := waiting{row: int64(width) * d.act.Size(), columns: of}
		w.group = int64(tokens) * w.row
		from := f.bytes
		f.bytes += (w.group*int64(d.kvHeads) + device.Align - 1) / device.Align * device.Align
		if host != nil {
			w.host = host[from:f.bytes]
		}
		return w
	}
	f.qkv = take(qkv, func(g int) []columns {
		return []columns{{g * q, 0, q}, {d.q + g*d.headDim, q, d.headDim}, {d.q + d.kv + g*d.headDim, q + d.headDim, d.headDim}}
	})
	ofOutput := func(g int) []columns { return []columns{{g * q, 0, q}} }
	f.o = take(q, ofOutput)
	if backward {
		f.do = take(q, ofOutput)
	}
	return f
}

// of is all rows of a group.
func (w waiting) of(group int) []byte { return w.host[int64(group)*w.group : int64(group+1)*w.group] }

// chunk is the rows of c of a group.
func (w waiting) chunk(group int, c span) []byte {
	return w.of(group)[int64(c.at)*w.row : int64(c.at+c.n)*w.row]
}

// put leaves x, the rows of c with all heads, on the host.
func (l *launch) put(w waiting, x rows, c span) {
	for g := range l.dims.kvHeads {
		pack, width := l.packed(w, c)
		for _, p := range w.columns(g) {
			op.Do(l.dev, l.s, op.CopyColumns{Dst: from(pack, p.inGroup), Src: from(x.of(c), p.at), T: c.n, C: p.n, DstStride: width, SrcStride: x.width})
		}
		CopyDown(l.s, w.chunk(g, c), pack.Mem())
	}
}

// get brings x, the rows of c with all heads, from the host.
func (l *launch) get(x rows, w waiting, c span) {
	for g := range l.dims.kvHeads {
		pack, width := l.packed(w, c)
		CopyUp(l.s, pack.Mem(), w.chunk(g, c))
		for _, p := range w.columns(g) {
			op.Do(l.dev, l.s, op.CopyColumns{Dst: from(x.of(c), p.at), Src: from(pack, p.inGroup), T: c.n, C: p.n, DstStride: x.width, SrcStride: width})
		}
	}
}

// packed is where the rows of c of a group are on their way, and how long one is.
func (l *launch) packed(w waiting, c span) (device.Tensor, int) {
	width := w.row / l.dims.act.Size()
	return l.group.pack.t.Slice(0, int64(c.n)*width), int(width)
}

// farLink is the link where hidden states lie on the host.
type farLink struct{}

// putQKV leaves what attention reads of a chunk on the host.
func (farLink) putQKV(l *launch, c span) {
	d, x := l.dims, l.qkv
	if d.qkNorm { // normed and rotated q and k are in rot, and v comes to them
		x = l.rot
		v := d.q + d.kv
		op.Do(l.dev, l.s, op.CopyColumns{Dst: from(x.of(c), v), Src: from(l.qkv.of(c), v), T: c.n, C: d.kv, DstStride: d.qkv, SrcStride: d.qkv})
	}
	l.put(l.far.qkv, x, c)
}

// getO brings attention's output of a chunk.
func (farLink) getO(l *launch, c span) { l.get(l.o, l.far.o, c) }

// putDO leaves the gradient of attention's output of a chunk on the host.
func (farLink) putDO(l *launch, c span) { l.put(l.far.do, l.do, c) }

// getDQKV brings the gradients of a chunk of what attention read. What q/k norm's backward reads is
// computed again, since it was left nowhere.
func (farLink) getDQKV(l *launch, c span) {
	if l.dims.qkNorm {
		l.project(c)
		l.rotate(c)
	}
	l.get(l.dqkv, l.far.qkv, c)
}

// groupShape is the attention of one group, and its heads in the packed rows x.
func (l *launch) groupShape(x device.Tensor) (a op.AttentionShape, q, k, v device.Tensor) {
	a = l.shape()
	a.Heads, a.KVHeads = a.Heads/a.KVHeads, 1
	_, wide := l.dims.perGroup()
	return a, x, from(x, wide), from(x, wide+l.dims.headDim)
}

// ofGroup is the part of t (H, T) that is a group's.
func (l *launch) ofGroup(t device.Tensor, g int) device.Tensor {
	if t.None() {
		return t
	}
	n := int64(l.dims.heads / l.dims.kvHeads * l.mb.Tokens)
	return t.Slice(int64(g)*n, n)
}

// attendGroups is attend, one group after the other.
func (l *launch) attendGroups() {
	b := l.group
	a, q, k, v := l.groupShape(b.qkv.t)
	for g := range l.dims.kvHeads {
		CopyUp(l.s, b.qkv.t.Mem(), l.far.qkv.of(g))
		op.Do(l.dev, l.s, op.Attention{AttentionShape: a, O: b.o.t, LSE: l.ofGroup(l.lse, g), Q: q, K: k, V: v, QStride: b.qkv.width, KStride: b.qkv.width})
		l.sink(b.o.t, l.ofGroup(l.lse, g), g*a.Heads, a.Heads)
		CopyDown(l.s, l.far.o.of(g), b.o.t.Mem())
	}
}

// attendGroupsBackward is attendBackward, one group after the other. The gradients take the
// place of q, k and v on the host.
func (l *launch) attendGroupsBackward() {
	b := l.group
	a, q, k, v := l.groupShape(b.qkv.t)
	_, dq, dk, dv := l.groupShape(b.dqkv.t)
	n := b.qkv.width
	for g := range l.dims.kvHeads {
		CopyUp(l.s, b.qkv.t.Mem(), l.far.qkv.of(g))
		CopyUp(l.s, b.o.t.Mem(), l.far.o.of(g))
		CopyUp(l.s, b.do.t.Mem(), l.far.do.of(g))
		op.Do(l.dev, l.s, op.AttentionBackward{AttentionShape: a, DQ: dq, DK: dk, DV: dv, DO: b.do.t, O: b.o.t, LSE: l.ofGroup(l.lse, g),
			Q: q, K: k, V: v, QStride: n, KStride: n, DQStride: n, DKStride: n, Delta: l.delta, Sums: l.sums})
		l.sinkGrad(l.ofGroup(l.lse, g), g*a.Heads, a.Heads)
		CopyDown(l.s, l.far.qkv.of(g), b.dqkv.t.Mem())
	}
}
