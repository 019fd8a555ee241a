package layers

import (
	"fmt"

	"mt/device"
	"mt/device/op"
)

// CacheStep describes the tokens that a generation step adds to a sequence's key/value cache: first
// the prompt or a piece of it, later one token at a time. All tensors are i32.
type CacheStep struct {
	Tokens int           // new tokens, at most Spec.MaxTokens
	Start  int           // tokens in the cache already
	Pos    device.Tensor // (Tokens): rows of the RoPE tables of Start, Start+1, …
	CuQ    device.Tensor // (2): 0, Tokens
	CuK    device.Tensor // (2): 0, Start+Tokens
	// ChunkBoundsQ and ChunkBoundsK are the results of Spec.CachedChunkBounds.
	ChunkBoundsQ, ChunkBoundsK device.Tensor
}

// CachedChunkBounds returns the bounds of attention chunks in generation; tokens is the number of new tokens, start the
// number of cached ones before them. The bounds q count from the first new token, the bounds k from the first key in
// the chunk of the first new token. Both are nil without chunked attention.
func (s Spec) CachedChunkBounds(start, tokens int) (q, k []int32) {
	size := s.Config.ChunkSize
	if size == 0 {
		return nil, nil
	}
	first := start / size * size
	q, k = []int32{0}, []int32{0}
	for at := first; at < start+tokens; at += size {
		end := min(at+size, start+tokens)
		q, k = append(q, int32(end-start)), append(k, int32(end-first))
	}
	return q, k
}

// CacheBytes returns the device memory of one block's key/value cache for maxTokens tokens: packed rows (maxTokens,
// (H+2·KV)·D) act of rotated q and k, and v. Absorbed latent attention (absorbed.go) has only the keys (maxTokens, R+r)
// act. The cache of a recurrence beside attention comes before these rows. The keys of an indexer (maxTokens, D) act come
// after these rows.
// The computation needs no device.
func (s Spec) CacheBytes(block, maxTokens int) int64 {
	a := allotter{dry: true}
	d := s.dims(block)
	width := d.cached
	if x := d.indexer; x != nil {
		width += x.HeadDim
	}
	a.take(d.act, maxTokens*width)
	if d.beside {
		return s.recurrentCacheBytes() + a.used
	}
	return a.used
}

// BlockForwardCached is BlockForward for new tokens of one growing sequence, in generation. It writes rows Start to
// Start+Tokens of the block's key/value cache, and the new tokens attend to all rows up to there.
//
//	x, y (Tokens, h) act, not overlapping; cache as CacheBytes says
func (t *Templates) BlockForwardCached(s device.Stream, block int, w Weights, y, x device.Tensor, step CacheStep, cache, ws device.Mem) {
	l := t.cachedAttention(s, withMLP, block, w, y, x, step, cache, ws)
	for c := range l.chunks() {
		l.mlp(c)
	}
}

// AttentionForwardCached is AttentionForward for one growing sequence, with the arguments of BlockForwardCached.
func (t *Templates) AttentionForwardCached(s device.Stream, block int, w Weights, y, x device.Tensor, step CacheStep, cache, ws device.Mem) {
	l := t.cachedAttention(s, withoutMLP, block, w, y, x, step, cache, ws)
	for c := range l.chunks() {
		l.residual(l.y, l.n, c)
	}
}

// cachedAttention stores the new tokens' keys and values in the cache and attends to all cached tokens. It returns the
// launch, whose l.o has attention's output for the new tokens.
func (t *Templates) cachedAttention(s device.Stream, mlp bool, block int, w Weights, y, x device.Tensor, step CacheStep, cache, ws device.Mem) *launch {
	t.spec.fits(step.Tokens)
	if t.spec.Config.IsRecurrent(block) {
		l := t.newLaunch(s, mlp, block, w, MicroBatch{Tokens: step.Tokens}, device.Mem{}, ws, false)
		l.x, l.y = whole(x, l.dims.hidden), whole(y, l.dims.hidden)
		l.decode(step, cache)
		return l
	}
	d := t.spec.dims(block)
	var sideCache device.Mem
	if d.beside {
		n := t.spec.recurrentCacheBytes()
		sideCache, cache = cache.Slice(0, n), cache.Slice(n, cache.Bytes-n)
	}
	width := d.cached
	rowBytes := int64(width) * d.act.Size()
	var indexed device.Mem
	if x := d.indexer; x != nil {
		cache, indexed = divideCache(cache, rowBytes, int64(x.HeadDim)*d.act.Size())
	}
	end := int64(step.Start + step.Tokens)
	if step.Start < 0 || end*rowBytes > cache.Bytes {
		panic(fmt.Sprintf("layers: tokens %d to %d in a cache of %d", step.Start, end, cache.Bytes/rowBytes))
	}
	l := t.newLaunch(s, mlp, block, w, MicroBatch{Tokens: step.Tokens, Pos: step.Pos}, device.Mem{}, ws, false)
	l.x, l.y = whole(x, d.hidden), whole(y, d.hidden)
	l.passX, l.passY = l.passengersOf(l.mb, x), l.passengersOf(l.mb, y)
	l.passOn()
	if l.side != nil {
		l.side.x, l.side.y = l.x, l.y
		l.side.decode(step, sideCache)
	}
	all := cache.Tensor(d.act, 0, end*int64(width))
	own := from(all, step.Start*width)
	var indexKeys device.Tensor
	if x := d.indexer; x == nil {
		if l.rot = whole(own, width); !d.normsV { // there is no backward, so q/k norm works in place
			l.qkv = l.rot
		}
	} else {
		indexKeys = indexed.Tensor(d.act, 0, end*int64(x.HeadDim))
		l.index.k, l.index.cached = whole(from(indexKeys, step.Start*x.HeadDim), x.HeadDim), true
	}
	for c := range l.chunks() {
		l.project(c)
		l.rotate(c)
	}
	a, first := l.cachedShape(step)
	q, keys := l.rot.t, all
	if d.indexer != nil {
		q = l.qkv.t
		l.columns(s, own, from(q, d.q), step.Tokens, width, width, d.qkv)
	} else {
		keys = from(all, first*width+d.q)
	}
	l.attendTo(op.Attention{AttentionShape: a, O: l.o.t, LSE: l.lse, Q: q, K: keys, V: from(keys, d.kv), QStride: d.qkv, KStride: width}, indexKeys)
	l.sink(l.o.t, l.lse, 0, d.heads)
	return l
}

// divideCache divides a block's cache into the packed rows of attention and the indexer's keys. row and key are the
// bytes of one of each.
func divideCache(cache device.Mem, row, key int64) (rows, keys device.Mem) {
	tokens := cache.Bytes / (row + key)
	return cache.Slice(0, tokens*row), cache.Slice(tokens*row, tokens*key)
}

// cachedShape returns the shape of attention from the new tokens to the cached rows. The first
// cached row that they attend to is first: 0 or, with chunked attention, the start of the first new
// token's chunk.
func (l *launch) cachedShape(step CacheStep) (a op.AttentionShape, first int) {
	a = l.attentionShape()
	a.CuQ, a.CuK, a.Seqs = step.CuQ, step.CuK, 1
	a.TQ, a.TK = step.Tokens, step.Start+step.Tokens
	a.MaxQ, a.MaxK = a.TQ, a.TK
	if size := l.spec.Config.AttentionChunk(l.block); size > 0 {
		first = step.Start / size * size
		a.CuQ, a.CuK, a.Seqs = step.ChunkBoundsQ, step.ChunkBoundsK, int(step.ChunkBoundsQ.Len)-1
		a.TK -= first
		a.MaxQ, a.MaxK = min(a.TQ, size), min(a.TK, size)
	}
	return a, first
}
