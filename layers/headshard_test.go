package layers

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/model"
)

// TestShardsEqualTheWhole: a head in parts (over its vocabulary) computes what a whole head
// computes. In fp32 both are within gradientBound of the exact gradient. The log-sum-exp of the
// loss is rounded at most once for each part. In bf16 both have the same logits. But each part
// rounds the gradient of norm(x) by 2⁻⁹, instead of one rounding altogether, and the gradients of
// earlier layers change by about as much, in few batches by up to 1.7 %. So bf16 takes the median of
// three batches.
func TestShardsEqualTheWhole(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		for act, bound := range map[device.DType]float64{device.F32: gradientBound, device.BF16: 0.012} {
			sp, batches := spec(cfg, KeepNothing, act), [][][]reference.Sequence{micro(cfg)}
			for draw := uint64(3); act == device.BF16 && draw <= 5; draw += 2 {
				batches = append(batches, [][]reference.Sequence{sequences(cfg.VocabSize, draw, 5, 1, 7), sequences(cfg.VocabSize, draw+1, 3, 4)})
			}
			whole := newRig(t, dev, sp, nil)
			var wants []result
			for _, batch := range batches {
				wants = append(wants, whole.step(whole.batch(batch...)))
			}
			for _, shards := range []int{2, 3, 5, cfg.VocabSize} {
				sp.HeadShards = shards
				r := newRig(t, dev, sp, whole.ref)
				var far []float64
				for i, batch := range batches {
					want, b := wants[i], r.batch(batch...)
					got := r.step(b)
					if d := distance(got.losses, want.losses); !(d <= 1e-6) {
						t.Errorf("%s, %d parts: losses differ by %g", act, shards, d)
					}
					compareBits(t, "an evaluation", result{losses: r.evaluate(b)}, result{losses: got.losses})
					var all, allWant []float64
					for _, name := range slices.Sorted(maps.Keys(want.grads)) {
						all, allWant = append(all, got.grads[name]...), append(allWant, want.grads[name]...)
					}
					far = append(far, distance(all, allWant))
				}
				slices.Sort(far)
				if d := far[len(far)/2]; !(d <= bound) {
					t.Errorf("%s, %d parts: gradients differ by %g", act, shards, d)
				}
			}
		}
	})
}

// TestTermsOfShards: with additional loss terms (Spec.Terms), losses and gradients of a head in
// parts equal those of a whole head. In an evaluation, losses have no such terms in either.
func TestTermsOfShards(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		sp := spec(cfg, KeepNothing, device.F32)
		plain := newRig(t, dev, sp, nil)
		without := plain.evaluate(plain.batch(micro(cfg)...))
		sp.Terms = op.LossTerms{Smoothing: 0.25, Z: 0.125}
		whole := newRig(t, dev, sp, plain.ref)
		want := whole.step(whole.batch(micro(cfg)...))
		if distance(want.losses, without) < 0.01 {
			t.Errorf("terms change nothing: %v", want.losses)
		}
		for _, shards := range []int{1, 3, cfg.VocabSize} {
			sp.HeadShards = shards
			r := newRig(t, dev, sp, plain.ref)
			b := r.batch(micro(cfg)...)
			got := r.step(b)
			if d := distance(got.losses, want.losses); !(d <= 1e-6) {
				t.Errorf("%d parts: losses differ by %g", shards, d)
			}
			if d := distance(r.evaluate(b), without); !(d <= 1e-6) {
				t.Errorf("%d parts: an evaluation differs by %g from one without terms", shards, d)
			}
			for _, name := range slices.Sorted(maps.Keys(want.grads)) {
				if d := distance(got.grads[name], want.grads[name]); !(d <= gradientBound) {
					t.Errorf("%d parts: the gradient of %s differs by %g", shards, name, d)
				}
			}
		}
	})
}

// TestShardsCoverTheVocabulary: the parts of the head cover the vocabulary in order, and none is
// empty. In large vocabularies they begin at multiples of shardAlign.
func TestShardsCoverTheVocabulary(t *testing.T) {
	for _, vocab := range []int{1, 2, 7, 128, 300, 511, 512, 1000, 32000, 152064} {
		for _, n := range []int{1, 2, 3, 4, 5, 7, 64} {
			if n > vocab {
				continue
			}
			sp := Spec{Config: config(func(c *model.Config) { c.VocabSize = vocab }), HeadShards: n}
			at := 0
			for k := range n {
				p := sp.Shard(k)
				if p.Index != k || p.From != at || p.Rows < 1 || vocab >= n*shardAlign && p.From%shardAlign != 0 {
					t.Fatalf("part %d of %d of %d is %+v, expected from %d on", k, n, vocab, p, at)
				}
				at += p.Rows
			}
			if at != vocab {
				t.Errorf("%d parts of %d end at %d", n, vocab, at)
			}
		}
	}
	defer func() {
		if got := fmt.Sprint(recover()); got != "layers: part 0 of 3 of a vocabulary of 2 is empty" {
			t.Errorf("three parts of two rows: %s", got)
		}
	}()
	Spec{Config: config(func(c *model.Config) { c.VocabSize = 2 }), HeadShards: 3}.Shard(0)
}

// TestShardLayout: a part of the head, in its slot and its gradient, has the final norm and the
// part's rows of lm_head, whether or not embeddings are tied.
func TestShardLayout(t *testing.T) {
	for _, tied := range []bool{false, true} {
		for _, bf16 := range []bool{false, true} {
			cfg := config(func(c *model.Config) { c.TieEmbeddings = tied })
			head := cfg.Layouts(bf16)[cfg.NumLayers+1]
			sp := Spec{Config: cfg, HeadShards: 2}
			l := sp.ShardLayout(head, 1)
			rows := l.Tensor(model.RoleLMHead)
			norm := l.Tensor(model.RoleFinalNorm)
			testkit.Check(t, fmt.Sprintf("tied %t bf16 %t", tied, bf16),
				testkit.Is("has a head", rows.Role, model.RoleLMHead),
				testkit.Is("has a norm", norm.Role, model.RoleFinalNorm),
				testkit.Is("tensors", len(l.Tensors), 2),
				testkit.Is("head rows", rows.Rows, 6),
				testkit.Is("head columns", rows.Cols, 12),
				testkit.Is("head is bf16", rows.BF16, bf16),
				testkit.Is("head is a reference", rows.Ref, false),
				testkit.Is("norm rows", norm.Rows, 12),
				testkit.Is("norm is bf16", norm.BF16, false),
			)
			slot := int64(256 + 512) // 12 and 6·12 elements of fp32, aligned
			if bf16 {
				slot = 256 + 256
			}
			if l.SlotBytes != slot || l.GradElems != 2*model.ElemAlign {
				t.Errorf("tied %t bf16 %t: a part takes %d bytes and %d elements", tied, bf16, l.SlotBytes, l.GradElems)
			}
		}
	}
}

// TestWorkspaceOfShards: the workspace of a head in parts has room for the logits of one part only.
func TestWorkspaceOfShards(t *testing.T) {
	cfg := config(func(c *model.Config) { c.VocabSize = 4096 })
	at := func(shards int) int64 {
		return Spec{Config: cfg, Act: device.F32, MaxTokens: 64, ChunkTokens: 64, HeadChunk: 64, HeadShards: shards}.WorkspaceBytes()
	}
	if got, want := at(1)-at(4), int64(64*4*(4096-1024)); got != want {
		t.Errorf("four parts save %d bytes, want %d", got, want)
	}
}
