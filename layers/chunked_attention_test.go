package layers

import (
	"reflect"
	"testing"

	"mt/device"
	"mt/model"
)

// TestChunkBounds: ChunkBounds cuts each document into attention chunks of 4 tokens. The documents
// include ones exactly one chunk long, one token longer, and shorter.
func TestChunkBounds(t *testing.T) {
	s := Spec{Config: config(func(c *model.Config) { c.ChunkSize, c.ChunkedAttention = 4, []bool{true, false} })}
	if got, want := s.ChunkBounds([]int32{0, 3, 7, 12, 13, 25}), []int32{0, 3, 7, 11, 12, 13, 17, 21, 25}; !reflect.DeepEqual(got, want) {
		t.Errorf("bounds %v, want %v", got, want)
	}
	for _, c := range []struct {
		start, tokens int
		q, k          []int32
	}{
		{0, 3, []int32{0, 3}, []int32{0, 3}},
		{0, 10, []int32{0, 4, 8, 10}, []int32{0, 4, 8, 10}},
		{6, 1, []int32{0, 1}, []int32{0, 3}},
		{6, 7, []int32{0, 2, 6, 7}, []int32{0, 4, 8, 9}},
		{8, 1, []int32{0, 1}, []int32{0, 1}},
	} {
		if q, k := s.CachedChunkBounds(c.start, c.tokens); !reflect.DeepEqual(q, c.q) || !reflect.DeepEqual(k, c.k) {
			t.Errorf("%d tokens behind %d: %v and %v, want %v and %v", c.tokens, c.start, q, k, c.q, c.k)
		}
	}
	s.Config = config(func(*model.Config) {})
	if q, k := s.CachedChunkBounds(6, 7); q != nil || k != nil || s.ChunkBounds([]int32{0, 9}) != nil {
		t.Error("a model without stretches has some")
	}
}

// TestCachedPieces: with chunked attention, generation that processes a text in several pieces
// gives the logits of the text in one piece. The pieces may end inside an attention chunk.
func TestCachedPieces(t *testing.T) {
	cfg := config(func(c *model.Config) { c.ChunkSize, c.ChunkedAttention, c.NumLayers = 4, []bool{true, false, true}, 3 })
	const tokens = 13
	r := newRig(t, openCPU(t, 2), spec(cfg, KeepNothing, device.F32), nil)
	ids, ws := sequences(cfg.VocabSize, 9, tokens)[0].IDs, r.alloc(r.spec.ForwardWorkspaceBytes())
	logits := func(pieces ...int) (out []float64) {
		var caches []device.Mem
		for range cfg.NumLayers {
			caches = append(caches, r.alloc(r.spec.CacheBytes(0, tokens)))
		}
		start := 0
		for _, n := range pieces {
			out = append(out, r.generate(ids, start, n, caches, ws)...)
			start += n
		}
		return out
	}
	want := logits(tokens)
	for _, pieces := range [][]int{{3, 10}, {6, 7}, {8, 5}, {1, 2, 3, 7}} {
		if d := distance(logits(pieces...), want); !(d <= gradientBound) {
			t.Errorf("pieces of %v tokens: logits differ by %g", pieces, d)
		}
	}
	r.checkGuards()
}
