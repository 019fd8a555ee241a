package layers

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/device"
	"mt/device/cpu"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/model"
)

// TestRecomputedFLOPsAreCounted: RecomputedFLOPs and HeadRecomputedFLOPs equal the operations that
// a counting device sees in addition to the minimum. The minimum is a step that keeps everything,
// without norms on outputs and with a whole head.
func TestRecomputedFLOPsAreCounted(t *testing.T) {
	cfg := config(func(c *model.Config) {
		c.NumHeads, c.NumKVHeads = 4, 2
		c.SlidingWindow, c.Sliding = 3, []bool{false, true}
	})
	seqs := sequences(cfg.VocabSize, 1, 5, 1, 7)
	const tokens = 13
	var least int64
	far := false // whether hidden states lie on the host
	for i, norms := range []string{"inputs", "inputs and outputs", "outputs"} {
		cfg.SandwichNorms, cfg.OutputNorms = i == 1, i == 2
		run := func(keep Keeps) (matmuls, attended int64) {
			toy, sp := newToy(), spec(cfg, KeepNothing, device.F32)
			sp.Keep, sp.OnHost = keep, far
			r := newRig(t, toy, sp, nil)
			r.step(r.batch(seqs))
			return toy.matmuls, toy.attended
		}
		far = false
		kept, once := run(KeepIn(2, KeepAll))
		if i == 0 {
			least = kept
		}
		for i := range 25 { // all pairs of levels
			keep := Keeps{Keep(i % 5), Keep(i / 5)}
			matmuls, attended := run(keep)
			want, sp := matmuls-least+attended-once, Spec{Config: cfg, Keep: keep}
			if got := sp.RecomputedFLOPs(tokens, sp.PairsAgain(5)+sp.PairsAgain(1)+sp.PairsAgain(7)); got != want {
				t.Errorf("keep %v, norms of %s: %d, the operations do %d", keep, norms, got, want)
			}
		}
		for _, cfg.QKNorm = range []bool{true, false} {
			far = false
			kept, once := run(KeepIn(2, KeepAll))
			far = true
			matmuls, attended := run(nil)
			want, sp := matmuls-kept+attended-once, Spec{Config: cfg, OnHost: true}
			if cfg.NormsOutputs() {
				want = matmuls - least + attended - once
			}
			if got := sp.RecomputedFLOPs(tokens, sp.PairsAgain(5)+sp.PairsAgain(1)+sp.PairsAgain(7)); got != want {
				t.Errorf("on the host, q/k norm %t, norms of %s: %d, the operations do %d", cfg.QKNorm, norms, got, want)
			}
		}
	}
	cfg.OutputNorms = false
	toy, sp := newToy(), spec(cfg, KeepAll, device.F32)
	sp.HeadShards = 4
	cut := newRig(t, toy, sp, nil)
	cut.step(cut.batch(seqs))
	if got := sp.HeadRecomputedFLOPs(tokens); toy.matmuls != least+got {
		t.Errorf("a head in parts: %d, the operations do %d", got, toy.matmuls-least)
	}
}

// TestRecomputedFLOPsOfParallelBlocks: for blocks whose attention and MLP read the same input, with
// and without a gate, RecomputedFLOPs equals the operations that a counting device sees in addition
// to the minimum.
func TestRecomputedFLOPsOfParallelBlocks(t *testing.T) {
	for _, gate := range []bool{false, true} {
		cfg := config(func(c *model.Config) { c.LayerNorm, c.Parallel, c.Ungated = true, true, !gate })
		var kept, once int64
		for keep := KeepInputs + 1; keep > KeepNothing; {
			keep--
			toy, sp := newToy(), spec(cfg, keep, device.F32)
			r := newRig(t, toy, sp, nil)
			r.step(r.batch(sequences(cfg.VocabSize, 1, 5, 8)))
			if keep == KeepInputs {
				kept, once = toy.matmuls, toy.attended
			}
			want := toy.matmuls - kept + toy.attended - once
			if got := sp.RecomputedFLOPs(13, sp.PairsAgain(5)+sp.PairsAgain(8)); got != want {
				t.Errorf("gate %t, keep %v: %d, the operations do %d", gate, keep, got, want)
			}
		}
	}
}

// TestRecomputedFLOPsOfSharedExperts: for DeepSeek-V3, even with everything kept, the backward
// computes again for each token the router's scores, gate and up of its 8 experts and the shared
// one, and attention's latent vectors.
func TestRecomputedFLOPsOfSharedExperts(t *testing.T) {
	c := testkit.Must(model.Preset("deepseek-v3"))(t)
	if got, want := (Spec{Config: c, Keep: KeepIn(c.NumLayers, KeepAll)}).RecomputedFLOPs(1, 0), int64(58*(2*7168*256+9*2*7168*2*2048)+61*2*7168*(1536+512+64)); got != want {
		t.Errorf("%d FLOPs, want %d", got, want)
	}
}

// TestRecomputedFLOPsOfExperts counts the operations of a model in which two of three blocks have
// experts. On every level of Keep, attention is computed again in all three blocks, the dense MLP
// in one, and the router and the chosen experts' gate and up in two.
func TestRecomputedFLOPsOfExperts(t *testing.T) {
	cfg := config(func(c *model.Config) { // D 6, h 12, F 10
		c.NumLayers, c.NumHeads, c.NumKVHeads = 3, 4, 2
		c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep, c.MLPOnlyLayers = 8, 3, 7, 1, []int{1}
	})
	const tokens, pairs = 13, 50
	const experts = 2 * (12*8 + 3*12*2*7)
	const attention, qkv, mlp = 4 * pairs * 24, 3 * 12 * 48, 24*12 + 12*20
	for _, c := range []struct {
		keep  Keeps
		pairs int64 // of blocks whose attention is computed again
		want  int64
	}{
		{KeepIn(3, KeepAll), 0, 2 * tokens * experts},
		{KeepIn(3, KeepQKV), 0, 2 * tokens * (experts + mlp)},
		{KeepIn(3, KeepAttention), 0, 2 * tokens * (experts + mlp + qkv)},
		{nil, pairs, 2*tokens*(experts+mlp+qkv) + attention},
		{Keeps{KeepNothing, KeepAll, KeepQKV}, pairs, 2*tokens*(experts+qkv/3) + attention},
		{Keeps{KeepAll, KeepQKV}, pairs, 2*tokens*(experts+mlp+qkv/3) + attention},
	} {
		if got := (Spec{Config: cfg, Keep: c.keep}).RecomputedFLOPs(tokens, c.pairs); got != c.want {
			t.Errorf("keep %s: %d, want %d", c.keep, got, c.want)
		}
		var products, attention int64
		for block := range 3 {
			p, a := (Spec{Config: cfg}).BlockRecomputes(block, c.keep.Of(block), tokens, pairs)
			products, attention = products+p, attention+a
		}
		if n := attention / (4 * pairs * 24); products+c.pairs*4*24 != c.want || (n > 0) != (c.pairs > 0) {
			t.Errorf("keep %s: products of %d by block, attention in %d blocks", c.keep, products, n)
		}
	}
}

func TestSavedAndCacheBytes(t *testing.T) {
	// With 256 tokens the size of every tensor is a multiple of the alignment, so there is no
	// padding.
	cfg := config(func(c *model.Config) { c.NumHeads, c.NumKVHeads = 4, 2 }) // D 6, h 12, F 10
	const tokens, o, lse, qkv, x2, gu = 256, 24, 4, 48, 12, 20
	for keep, elems := range map[Keep]int64{KeepNothing: 0, KeepAttention: o, KeepQKV: o + qkv, KeepAll: o + qkv + x2 + gu, KeepInputs: o + qkv + x2 + gu + 2*x2 + gu/2} {
		for _, act := range []device.DType{device.F32, device.BF16} {
			want := tokens * elems * act.Size()
			if keep > KeepNothing {
				want += 4 * tokens * lse
			}
			if keep == KeepInputs { // two norms' statistics
				want += 2 * 4 * tokens
			}
			if got := KindOf(model.Block).SavedBytes(Spec{Config: cfg, Act: act}, 0, keep, tokens); got != want {
				t.Errorf("keep %d %s: %d bytes, want %d", keep, act, got, want)
			}
		}
	}
	if got, want := KindOf(model.MLP).SavedBytes(Spec{Config: cfg, Act: device.F32}, 0, KeepInputs, tokens), int64(4*tokens*(gu+gu/2+x2+1)); got != want {
		t.Errorf("an MLP alone keeps %d bytes, want %d", got, want)
	}
	cfg.Parallel = true
	two := KindOf(model.Block).SavedBytes(Spec{Config: cfg, Act: device.F32}, 0, KeepInputs, tokens)
	cfg.SharedNorm = true
	if one := KindOf(model.Block).SavedBytes(Spec{Config: cfg, Act: device.F32}, 0, KeepInputs, tokens); two-one != 4*tokens*(x2+1) {
		t.Errorf("of one norm for attention and MLP %d bytes are kept, of two %d", one, two)
	}
	if got := (Spec{Config: cfg, Act: device.BF16}).CacheBytes(0, tokens); got != 2*tokens*qkv {
		t.Errorf("cache of %d bytes, want %d", got, 2*tokens*qkv)
	}
}

// TestWorkspaceGrowsByAttentionOnly: if a micro-batch has more tokens than a chunk, more tokens add
// to the workspace only the buffers that attention needs for all tokens.
func TestWorkspaceGrowsByAttentionOnly(t *testing.T) {
	cfg := config(func(*model.Config) {})
	at := func(tokens int) int64 {
		return Spec{Config: cfg, Act: device.F32, MaxTokens: tokens, ChunkTokens: 64, HeadChunk: 64}.WorkspaceBytes()
	}
	// perToken is the size of attention's output and its gradient, qkv and its gradient,
	// log-sum-exp and delta.
	perToken := int64(4 * (2*12 + 2*36 + 2*2))
	if got := at(2048) - at(1024); got != 1024*perToken {
		t.Errorf("1024 tokens more take %d bytes, want %d", got, 1024*perToken)
	}
}

func TestBrokenPlansPanic(t *testing.T) {
	cfg := config(func(*model.Config) {})
	r := newRig(t, newToy(), spec(cfg, KeepAttention, device.F32), nil)
	b := r.batch(sequences(cfg.VocabSize, 1, 14))
	small := r.batch(sequences(cfg.VocabSize, 1, 4))
	x, y := r.tensor(device.F32, 14*12), r.tensor(device.F32, 14*12)
	ws := r.alloc(r.spec.WorkspaceBytes())
	cases := []struct {
		name, want string
		f          func()
	}{
		{"too many tokens", "14 tokens where 1 to 13", func() {
			r.tpl.BlockForward(r.s, 0, r.weights[1], OnDevice(y), OnDevice(x), b.mbs[0], device.Mem{}, ws)
		}},
		{"small workspace", "slice", func() {
			r.tpl.BlockForward(r.s, 0, r.weights[1], OnDevice(y), OnDevice(x), small.mbs[0], device.Mem{}, ws.Slice(0, 512))
		}},
		{"full cache", "tokens 2 to 6 in a cache of 5", func() {
			r.tpl.BlockForwardCached(r.s, 0, r.weights[1], y, x, CacheStep{Tokens: 4, Start: 2}, ws.Slice(0, 5*36*4), ws)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want %q", got, c.want)
				}
			}()
			c.f()
		})
	}
}

// TestFirstStepEqualsTransformers: the first step of recorded training runs has the loss and the
// gradient norm that Transformers and PyTorch computed.
func TestFirstStepEqualsTransformers(t *testing.T) {
	testkit.NotShort(t)
	for _, dir := range testkit.Recordings(t) {
		f := testkit.Must(reference.LoadFixture(dir))(t)
		if f.Config.NumExperts > 0 {
			continue // a rig of its own, which internal/run compares whole
		}
		for _, shards := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/shards=%d", filepath.Base(dir), shards), func(t *testing.T) {
				firstStep(t, openCPU(t, 2), f, shards)
			})
		}
	}
}

func firstStep(t *testing.T, dev device.Device, f *reference.Fixture, shards int) {
	sp := Spec{Config: f.Config, Act: device.F32, MaxTokens: 256, ChunkTokens: 32, HeadChunk: 32, HeadShards: shards, Positions: 256}
	r := newRig(t, dev, sp, f.Weights)
	half := f.PerStep / 2
	b := r.batch(f.Rows[:half], f.Rows[half:f.PerStep])
	got := r.step(b)
	var loss, norm float64
	for _, v := range got.losses {
		loss += v / float64(b.supervised)
	}
	for _, name := range slices.Sorted(maps.Keys(got.grads)) {
		for _, v := range got.grads[name] {
			norm += v * v
		}
	}
	if d := loss/f.Loss - 1; !(max(d, -d) <= f.LossBound) {
		t.Errorf("loss %.9g, recorded %.9g", loss, f.Loss)
	}
	if d := norm/(f.GradNorm*f.GradNorm) - 1; !(max(d, -d) <= 2*f.NormBound) { // of the square
		t.Errorf("squared norm %.9g, recorded %.9g", norm, f.GradNorm*f.GradNorm)
	}
}

// TestThreadsChangeNothing: the number of threads of the CPU device changes no bit of losses and
// gradients, whatever the forward keeps.
func TestThreadsChangeNothing(t *testing.T) {
	cfg := config(func(c *model.Config) {
		c.QKNorm, c.QKVBias, c.VocabSize, c.HiddenSize, c.IntermediateSize = true, true, 150, 72, 100
		c.NumHeads, c.NumKVHeads, c.HeadDim = 4, 2, 20
	})
	seqs := sequences(cfg.VocabSize, 4, 90, 1, 33, 70)
	for _, act := range []device.DType{device.F32, device.BF16} {
		var want result
		for _, threads := range []int{1, 2, 3, 5} {
			sp := Spec{Config: cfg, Act: act, Keep: KeepIn(cfg.NumLayers, min(Keep(threads), KeepInputs)), MaxTokens: 194, ChunkTokens: 64, HeadChunk: 48, Positions: 90}
			r := newRig(t, openCPU(t, threads), sp, nil)
			got := r.step(r.batch(seqs))
			if threads == 1 {
				want = got
			}
			compareBits(t, fmt.Sprintf("%s, %d threads", act, threads), got, want)
		}
	}
}

// TestLaunchGarbage: a launch makes few allocations in Go. The device in this test makes none, so
// all are the launch's own.
func TestLaunchGarbage(t *testing.T) {
	if testkit.Race {
		t.Skip("with the race detector every operation has memory of its own")
	}
	cfg := config(func(*model.Config) {})
	r := newRig(t, newToy(), spec(cfg, KeepNothing, device.F32), nil)
	b := r.batch(sequences(cfg.VocabSize, 1, 5, 8))
	mb, n := b.mbs[0], 13*cfg.HiddenSize
	x, dx, losses := r.tensor(device.F32, n), r.tensor(device.F32, n), r.tensor(device.F32, 13)
	g := BindGrads(r.layouts[1], r.alloc(4*r.layouts[1].GradElems))
	gh := BindGrads(r.layouts[3], r.alloc(4*r.layouts[3].GradElems))
	ws := r.alloc(r.spec.WorkspaceBytes())
	tpl := New(r.spec, idle{})
	got := testing.AllocsPerRun(10, func() {
		tpl.BlockForward(r.s, 0, r.weights[1], OnDevice(dx), OnDevice(x), mb, device.Mem{}, ws)
		tpl.BlockBackward(r.s, 0, r.weights[1], g, OnDevice(dx), OnDevice(x), mb, device.Mem{}, ws, true)
		tpl.HeadForwardBackward(r.s, r.weights[3], gh, OnDevice(dx), OnDevice(x), losses, mb, ws, 1, true)
	})
	// The allowed allocations are a launch, two allotters, and the loops over chunks.
	if got > 24 {
		t.Errorf("%g allocations in three launches", got)
	}
}

// idle is a device whose operations do nothing.
type idle struct{ device.Device }

func (idle) Do(device.Stream, device.Op) {}

// TestBindInPlace: weights used in place in host memory have the same elements as weights copied to
// a slot. A tied head's tensor comes from the embedding's tile.
func TestBindInPlace(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1, Unified: true}))(t)
	cfg := config(func(c *model.Config) { c.TieEmbeddings = true })
	layouts := cfg.Layouts(false)
	head := layouts[len(layouts)-1]
	tile := testkit.Must(dev.AllocHost(head.TileBytes))(t)
	table := testkit.Must(dev.AllocHost(layouts[0].TileBytes))(t)
	w := BindInPlace(head, dev, func(off, bytes int64) []byte {
		if off < head.TileBytes {
			return tile[off : off+bytes]
		}
		return table[off-head.TileBytes:][:bytes]
	})
	for role, host := range map[model.Role][]byte{model.RoleFinalNorm: tile, model.RoleLMHead: table} {
		if w[role].Addr != dev.BindHost(host).Addr || w[role].DType != device.F32 {
			t.Errorf("%s is bound at %#x as %s", role, w[role].Addr, w[role].DType)
		}
	}
	if got, want := w[model.RoleLMHead].Len, int64(cfg.VocabSize*cfg.HiddenSize); got != want {
		t.Errorf("lm_head of %d elements, want %d", got, want)
	}
	dev.FreeHost(tile)
	dev.FreeHost(table)
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// TestWorkspaceServesEveryLaunch: one workspace of WorkspaceBytes is enough for every launch, also
// in an evaluation and for every Keep. The models' largest buffers belong to the MLP in one case
// and to the head in the other.
func TestWorkspaceServesEveryLaunch(t *testing.T) {
	wide := config(func(c *model.Config) { c.VocabSize = 500 })
	deep := config(func(c *model.Config) { c.IntermediateSize = 100 })
	for _, cfg := range []*model.Config{deep, wide} {
		for i := range 25 { // all pairs of levels
			sp := spec(cfg, KeepNothing, device.F32)
			keep := Keeps{Keep(i % 5), Keep(i / 5)}
			sp.Keep = keep
			r := newRig(t, newToy(), sp, nil)
			lower := sp
			lower.Keep = KeepIn(2, slices.Min(keep))
			if got, want := sp.WorkspaceBytes(), lower.WorkspaceBytes(); got != want {
				t.Errorf("keep %v: a workspace of %d bytes, that of the lower level everywhere has %d", keep, got, want)
			}
			r.step(r.batch(micro(cfg)...)) // panics where its workspace is too small
			all, forward := r.spec.WorkspaceBytes(), r.spec.ForwardWorkspaceBytes()
			if forward > all {
				t.Errorf("vocabulary %d, ffn %d, keep %v: evaluation takes %d bytes, everything %d", cfg.VocabSize, cfg.IntermediateSize, keep, forward, all)
			}
			r.evaluate(r.batch(micro(cfg)...)) // panics where its workspace is too small
		}
	}
}

// TestKeepsInWords: Keeps.String describes what blocks keep, with the highest level first.
func TestKeepsInWords(t *testing.T) {
	for want, keep := range map[string]Keeps{
		"nothing":                            nil,
		"all":                                KeepIn(3, KeepAll),
		"inputs in 2 of 3 blocks, all in 1":  {KeepInputs, KeepAll, KeepInputs},
		"all in 2 of 3 blocks, nothing in 1": {KeepAll, KeepNothing, KeepAll},
		"all in 1 of 6 blocks, qkv in 2, attention in 3": {KeepAttention, KeepQKV, KeepAll, KeepAttention, KeepAttention, KeepQKV},
		"attention in 1 of 2 blocks, nothing in 1":       {KeepNothing, KeepAttention},
	} {
		if got := keep.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if k := (Keeps{KeepAll}); k.Of(0) != KeepAll || k.Of(1) != KeepNothing || !k.Anything() || KeepIn(4, KeepNothing).Anything() {
		t.Errorf("%v: block 0 keeps %s, block 1 %s", k, k.Of(0), k.Of(1))
	}
}

// TestWorkspaceOfExpertsBlocks: the workspace of one kind of block has room for the tensors that
// its block with the lowest Keep level does not keep. The levels of other kinds of blocks do not
// matter.
func TestWorkspaceOfExpertsBlocks(t *testing.T) {
	cfg := config(func(c *model.Config) {
		c.NumLayers, c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep, c.MLPOnlyLayers = 3, 8, 3, 7, 1, []int{1}
	})
	at := func(kind model.LayerKind, keep Keeps) int64 {
		sp := spec(cfg, KeepNothing, device.F32)
		sp.Keep = keep
		return KindOf(kind).WorkspaceBytes(sp, true)
	}
	for _, kind := range []model.LayerKind{model.Block, model.Attention} {
		none, all := at(kind, nil), at(kind, KeepIn(3, KeepAll))
		dense, experts := at(kind, Keeps{KeepNothing, KeepAll, KeepNothing}), at(kind, Keeps{KeepAll, KeepNothing, KeepAll})
		if kind == model.Attention {
			dense, experts = experts, dense
		}
		if all >= none || dense != all || experts != none {
			t.Errorf("%s: %d bytes where its blocks keep all and %d where they keep nothing, whatever others keep; where all blocks do, %d and %d",
				kind, dense, experts, all, none)
		}
	}
}

// TestWorkspaceOfSums: the workspace for MaxTokens tokens, including the memory in which a fused
// attention backward sums gradients (Spec.Fused), is large enough for every smaller micro-batch
// too.
func TestWorkspaceOfSums(t *testing.T) {
	cfg := config(func(c *model.Config) { c.NumHeads, c.NumKVHeads, c.HeadDim = 4, 2, 64 })
	at := func(tokens int, fused, onHost bool) int64 {
		return Spec{Config: cfg, Act: device.BF16, MaxTokens: tokens, ChunkTokens: 64, HeadChunk: 64, Fused: fused, OnHost: onHost}.WorkspaceBytes()
	}
	for _, c := range []struct {
		tokens int
		onHost bool
		want   int64
	}{{1024, false, 4 * 4 * 64 * (1024 + 128 + 16)}, {1024, true, 4 * 2 * 64 * (1024 + 128 + 16)}, {1 << 20, false, 0}} {
		if got := at(c.tokens, true, c.onHost) - at(c.tokens, false, c.onHost); got != c.want {
			t.Errorf("%d tokens, on the host %t: %d bytes more, want %d", c.tokens, c.onHost, got, c.want)
		}
	}
	if less, more := at(1<<16, true, false), at(1<<16+1, true, false); more < less {
		t.Errorf("%d bytes for one token more than %d", more, less)
	}
}
