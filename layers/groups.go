package layers

import (
	"mt/device"
	"mt/device/op"
)

// This file has a block's attention with hidden states on the host (Spec.OnHost). A group is one key/value head with
// the query heads that share it. The device holds one group at a time, for all tokens: its queries, keys, values and
// output, and in the backward their gradients. The other groups wait on the host. Products still process chunks of
// tokens with all heads. Every operation thus gets the same operands as with everything on the device, and returns the
// same bits.
//
// Spec.Scratch on the host holds the groups one after the other. Each group has its rows of all tokens (G = H/KV query
// heads share a key/value head):
//
//	qkv (KV, T, (G+2)·D) act: normed and rotated q and k, and v; in the backward their
//	  gradients at the end
//	o, do (KV, T, G·D) act
//	gate (T, out) act: of the output, for all heads; then its gradient

// groupBuffers are a launch's device buffers for one group (a key/value head with its G query
// heads). C is the number of tokens in a chunk.
//
//	qkv, dqkv (T, (G+2)·D), o, do (T, G·D) act: of the current group; gradients only in the
//	  backward
//	pack (C, (G+2)·D) act: a chunk's rows on their way between host and device
type groupBuffers struct{ qkv, dqkv, o, do, pack rows }

// perGroup returns the number of columns of one group: in a packed row of q, k and v, and in a row of outputs (or
// queries).
func (d dims) perGroup() (qkv, q int) {
	q = d.q / d.kvHeads
	return q + 2*d.headDim, q
}

// takeGroup takes the device buffers for one group from ws.
func (s Spec) takeGroup(d dims, tokens int, backward bool, ws *allotter) groupBuffers {
	qkv, q := d.perGroup()
	chunk := chunkOf(s.ChunkTokens, tokens)
	b := groupBuffers{qkv: ws.wholeRows(d.act, tokens, qkv), o: ws.wholeRows(d.act, tokens, q),
		pack: ws.chunkRows(d.act, chunk, qkv)}
	if backward {
		b.dqkv, b.do = ws.wholeRows(d.act, tokens, qkv), ws.wholeRows(d.act, tokens, q)
	}
	return b
}

// ScratchBytes returns the host memory that launches of MaxTokens tokens need besides hidden states. It is 0 unless
// hidden states are on the host (OnHost). The computation needs no device.
func (s Spec) ScratchBytes(backward bool) int64 {
	if !s.OnHost {
		return 0
	}
	var most int64
	for block := range s.Config.NumLayers {
		most = max(most, s.scratch(s.dims(block), s.MaxTokens, backward, nil).bytes)
	}
	return most
}

// scratch is a launch's memory on the host: the rows of q, k and v, and of attention's outputs. In
// the backward, do has the gradients of these outputs. gate has the rows of the output gate, or
// their gradient.
type scratch struct {
	qkv, o, do waiting
	gate       []byte
	bytes      int64
}

// waiting describes rows of one kind on the host. First come the rows of the first group (a
// key/value head with its query heads) for all tokens, then the second group's rows, and so on.
type waiting struct {
	host    []byte
	group   int64 // bytes of a group
	row     int64 // bytes of a row of a group
	columns func(group int) []columns
}

// columns says where n columns are in two kinds of rows: from column at in rows of all heads, and
// from column inGroup in rows of one group.
type columns struct{ at, inGroup, n int }

// scratch divides the memory host among the fields of its result. If host is nil, it only counts
// the bytes. It is empty for a block without groups.
func (s Spec) scratch(d dims, tokens int, backward bool, host []byte) (f scratch) {
	if !d.groups {
		return f
	}
	qkv, q := d.perGroup()
	memory := func(bytes int64) []byte {
		from := f.bytes
		f.bytes += (bytes + device.Align - 1) / device.Align * device.Align
		if host == nil {
			return nil
		}
		return host[from:f.bytes]
	}
	take := func(width int, of func(int) []columns) waiting {
		w := waiting{row: int64(width) * d.act.Size(), columns: of}
		w.group = int64(tokens) * w.row
		w.host = memory(w.group * int64(d.kvHeads))
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
	if d.gated {
		f.gate = memory(int64(tokens) * int64(d.out) * d.act.Size())
	}
	return f
}

// of returns the host memory with all tokens' rows of a group.
func (w waiting) of(group int) []byte { return w.host[int64(group)*w.group : int64(group+1)*w.group] }

// chunk returns the host memory with a group's rows for the tokens of chunk c.
func (w waiting) chunk(group int, c span) []byte {
	return w.of(group)[int64(c.at)*w.row : int64(c.at+c.n)*w.row]
}

// put copies x to the host memory of w. x is on the device; its rows are the tokens of chunk c, and each row has all
// heads side by side. w has the groups apart (a group is one key/value head with its query heads). put thus gathers the
// columns of one group at a time in a device buffer (see packed), and copies the buffer to the host.
func (l *launch) put(w waiting, x rows, c span) {
	for g := range l.dims.kvHeads {
		pack, width := l.packed(w, c)
		for _, p := range w.columns(g) {
			op.Do(l.dev, l.s, op.CopyColumns{Dst: from(pack, p.inGroup), Src: from(x.of(c), p.at), T: c.n, C: p.n, DstStride: width, SrcStride: x.width})
		}
		CopyDown(l.s, w.chunk(g, c), pack.Mem())
	}
}

// get copies the rows of chunk c of all groups from the host into x, which has all heads side by side.
func (l *launch) get(x rows, w waiting, c span) {
	for g := range l.dims.kvHeads {
		pack, width := l.packed(w, c)
		CopyUp(l.s, pack.Mem(), w.chunk(g, c))
		for _, p := range w.columns(g) {
			op.Do(l.dev, l.s, op.CopyColumns{Dst: from(x.of(c), p.at), Src: from(pack, p.inGroup), T: c.n, C: p.n, DstStride: x.width, SrcStride: width})
		}
	}
}

// packed returns the device buffer through which one group's rows of chunk c are copied, and the width of a row in
// elements.
func (l *launch) packed(w waiting, c span) (device.Tensor, int) {
	width := w.row / l.dims.act.Size()
	return l.group.pack.t.Slice(0, int64(c.n)*width), int(width)
}

// farLink is the hiddenLink of a run with Spec.OnHost: it copies attention's inputs and outputs between the host and
// the device.
type farLink struct{}

// putQKV copies attention's inputs of a chunk to the host.
func (farLink) putQKV(l *launch, c span) {
	d, x := l.dims, l.qkv
	if d.qkNorm { // rot has normed and rotated q and k
		x = l.rot
	}
	if d.qkNorm && !d.normsV { // v is added
		v := d.q + d.kv
		op.Do(l.dev, l.s, op.CopyColumns{Dst: from(x.of(c), v), Src: from(l.qkv.of(c), v), T: c.n, C: d.kv, DstStride: d.qkv, SrcStride: d.qkv})
	}
	l.put(l.far.qkv, x, c)
	if d.gated {
		l.columns(l.s, l.gate.z.of(c), from(l.qkv.of(c), d.gateAt()), c.n, d.out, d.out, d.qkv)
		store(l.s, c, l.gate.z)
	}
}

// getO copies attention's output of a chunk, and its gate, from the host.
func (farLink) getO(l *launch, c span) {
	l.get(l.o, l.far.o, c)
	fetch(l.s, c, l.gate.z)
}

// putDO copies the gradients of attention's output of a chunk, and of its gate, to the host.
func (farLink) putDO(l *launch, c span) {
	l.put(l.far.do, l.do, c)
	store(l.s, c, l.gate.dz)
}

// getDQKV copies the gradients of attention's inputs for the tokens of chunk c from the host. With q/k norm it also
// computes q and k before the norm again, because the norm's backward reads them and they are not on the host.
func (farLink) getDQKV(l *launch, c span) {
	if l.dims.qkNorm {
		l.project(c)
		l.rotate(c)
	}
	l.get(l.dqkv, l.far.qkv, c)
	if d := l.dims; d.gated {
		fetch(l.s, c, l.gate.dz)
		l.columns(l.s, from(l.dqkv.of(c), d.gateAt()), l.gate.dz.of(c), c.n, d.out, d.qkv, d.out)
	}
}

// groupShape returns the shape of one group's attention. q, k and v are views of the group's packed rows x, each
// beginning at its first column.
func (l *launch) groupShape(x device.Tensor) (a op.AttentionShape, q, k, v device.Tensor) {
	a = l.shape()
	a.Heads, a.KVHeads = a.Heads/a.KVHeads, 1
	_, wide := l.dims.perGroup()
	return a, x, from(x, wide), from(x, wide+l.dims.headDim)
}

// ofGroup returns the part of t (H, T) that belongs to the query heads of group g; none if t is none.
func (l *launch) ofGroup(t device.Tensor, g int) device.Tensor {
	if t.None() {
		return t
	}
	n := int64(l.dims.heads / l.dims.kvHeads * l.mb.Tokens)
	return t.Slice(int64(g)*n, n)
}

// attendGroups does the work of attend with hidden states on the host: attention of one group after the other.
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

// attendGroupsBackward does the work of attendBackward with hidden states on the host, one group after the other. Each
// group's gradients overwrite its q, k and v on the host.
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
