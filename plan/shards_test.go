package plan

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
)

// qwen returns a Qwen2.5 config with the given sizes.
func qwen(hidden, ffn, blocks, heads, kv int) *model.Config {
	return &model.Config{Arch: "Qwen2ForCausalLM", ModelType: "qwen2", VocabSize: 152064, HiddenSize: hidden, IntermediateSize: ffn, NumLayers: blocks,
		NumHeads: heads, NumKVHeads: kv, HeadDim: 128, MaxPositions: 131072, RMSNormEps: 1e-6, QKVBias: true, Rope: model.Rope{Type: "default", Theta: 1e6}}
}

// TestLargeModelsFit: models whose head with its gradient would take half of the device's memory
// fit there with enough buffers for copies to overlap the computation. The head is cut into parts
// if necessary.
func TestLargeModelsFit(t *testing.T) {
	big, small := qwen(5120, 13824, 48, 40, 8), qwen(3584, 18944, 28, 28, 4)
	for _, c := range []struct {
		name           string
		cfg            *model.Config
		rows, tokens   int
		gib            int64
		parts, buffers int
	}{
		{"14B, 16 rows of 1024", big, 16, 1024, 10, 3, 2},
		{"14B, a row of 16k", big, 1, 16384, 10, 3, 2},
		{"7B, a row of 32k", small, 1, 32768, 10, 1, 2},
		{"7B, a row of 32k, less memory", small, 1, 32768, 7, 3, 2},
		{"14B, no budget", big, 16, 1024, 0, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := resolve(t, Request{Planes: optim.AdamW{}.Planes, Config: c.cfg, Rows: c.rows, RowTokens: c.tokens, Act: device.BF16, Clip: true, Context: 600 << 20, DeviceMemory: c.gib << 30})
			var out bytes.Buffer
			r.Table().Write(&out)
			t.Logf("parts %d, micro-batches of %d, bf16 gradients %t, keep %s, depths %+v\n%s", r.Spec.Shards(), r.Limits.MicroBatchTokens,
				r.GradBF16, r.Spec.Keep, r.Depths, out.String())
			if r.Depths.WeightSlots != 3 || r.Spec.Shards() != c.parts || r.Depths.GradBuffers != c.buffers || r.GradBF16 {
				t.Errorf("%d weight slots, %d gradient buffers, %d parts of the head, want 3, %d, %d", r.Depths.WeightSlots, r.Depths.GradBuffers,
					r.Spec.Shards(), c.buffers, c.parts)
			}
		})
	}
}

// wide requests a model whose head is about six times as large as a block.
func wide() Request {
	q := request()
	q.Config = config(6, false)
	q.Config.VocabSize = 32000
	return q
}

// TestPartsFitABlock: leastShards cuts the head into the fewest parts whose slot and gradient
// buffer are no larger than a block's.
func TestPartsFitABlock(t *testing.T) {
	for _, act := range []device.DType{device.F32, device.BF16} {
		q := wide()
		q.Act, q.Recompute, q.Depths.ActivationSlots = act, "full", 5
		whole := resolve(t, q)
		n := whole.leastShards()
		if whole.Spec.Shards() != 1 || n < 5 || n > 7 {
			t.Fatalf("%s: %d parts without a budget, %d at least", act, whole.Spec.Shards(), n)
		}
		at := func(parts int) *Run {
			q.HeadShards = parts
			return resolve(t, q)
		}
		block := config(6, false).Layouts(act == device.BF16)[1]
		cut := at(n)
		slot := func(r *Run) int64 { _, bytes := r.Slots(schedule.Streamed); return bytes }
		grad := func(r *Run) int64 { return r.Spec.ShardLayout(r.Layouts[r.Head()], 0).GradElems }
		if heads, _ := cut.Slots(schedule.Whole); slot(cut) != block.SlotBytes || heads != 0 || grad(cut) > block.GradElems {
			t.Errorf("%s: %d parts need slots of %d bytes and gradients of %d elements, a block %d and %d", act, n, slot(cut),
				grad(cut), block.SlotBytes, block.GradElems)
		}
		if less := at(n - 1); slot(less) <= block.SlotBytes && grad(less) <= block.GradElems {
			t.Errorf("%s: %d parts fit too", act, n-1)
		}
		if a, b := whole.Table().Device, cut.Table().Device; b >= a {
			t.Errorf("%s: the device holds %d bytes with a cut head, %d with a whole one", act, b, a)
		}
		if small := resolve(t, request()); small.leastShards() != 1 {
			t.Errorf("%s: a head smaller than a block is cut into %d", act, small.leastShards())
		}
	}
}

// TestPartsUnderBudgets: under ever lower budgets the head stays whole as long as everything else
// has its automatic depths beside it. Below that it is split, independent of requested depths.
// Every request that fits with the smallest choices is resolved. Splitting gains nothing if weights
// are used in place and gradients accumulate in slabs.
func TestPartsUnderBudgets(t *testing.T) {
	testkit.NotShort(t)
	ratio := budgetRatio(t, 0.9)
	for _, clip := range []bool{false, true} {
		for _, unified := range []bool{false, true} {
			q := wide()
			q.Act, q.Clip, q.Unified = device.BF16, clip, unified
			full := resolve(t, q).Table()
			seen := map[int]int{}
			for share := 1.02; share > 0.02; share *= ratio {
				q.DeviceMemory = int64(share * float64(full.Device))
				want, err := Resolve(q)
				small := least(q)
				if _, tooSmall := Resolve(small); tooSmall == nil && err != nil {
					t.Fatalf("clip %t unified %t %.3f: the smallest run fits and the automatic does not: %v", clip, unified, share, err)
				}
				if err != nil {
					continue
				}
				seen[want.Spec.Shards()]++
				for _, d := range []Depths{{WeightSlots: 1}, {WeightSlots: 20}, {GradBuffers: 4}, {ActivationSlots: 3}, {ActivationSlots: 200}} {
					b := q
					b.Depths = d
					if got, _ := Resolve(b); got == nil || got.Spec.Shards() != want.Spec.Shards() || got.Spec.HeadChunk != want.Spec.HeadChunk {
						t.Errorf("clip %t unified %t %.3f: depths %+v change the parts", clip, unified, share, d)
					}
				}
			}
			kinds := 2
			if clip && unified {
				kinds = 1
			}
			if len(seen) != kinds || seen[1] == 0 {
				t.Errorf("clip %t unified %t: parts seen %v", clip, unified, seen)
			}
		}
	}
}

// TestAskedParts: a requested number of head parts is kept, or refused with an error that names the
// key.
func TestAskedParts(t *testing.T) {
	for _, n := range []int{1, 2, 40} {
		q := wide()
		q.HeadShards, q.DeviceMemory = n, 2<<30
		if r := resolve(t, q); r.Spec.Shards() != n {
			t.Errorf("asked for %d parts, got %d", n, r.Spec.Shards())
		}
	}
	for n, want := range map[int]string{-1: "pipeline.head_shards: -1", 32001: "pipeline.head_shards: 32001 parts of a vocabulary of 32000"} {
		q := wide()
		q.HeadShards = n
		var bad *BadDepth
		if _, err := Resolve(q); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || bad.Key != "pipeline.head_shards" {
			t.Errorf("%d parts: %v", n, err)
		}
	}
	q := wide()
	q.HeadShards, q.DeviceMemory = 1, 1<<20
	if _, err := Resolve(q); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("set pipeline.head_shards: %d", resolve(t, wide()).leastShards())) {
		t.Errorf("a head that does not fit: %v", err)
	}
	q.HeadShards = 6
	if _, err := Resolve(q); err == nil || strings.Contains(err.Error(), "head_shards") {
		t.Errorf("a head that is cut already: %v", err)
	}
}

// TestHeadChunk: the head computes logits for as many tokens at once as fit in the workspace that a
// block needs anyway: at most maxHeadChunk, or roomyHeadChunk on a device with ample memory. 128
// MiB of logits are always allowed. A micro-batch smaller than a chunk is one chunk.
func TestHeadChunk(t *testing.T) {
	testkit.NotShort(t)
	for _, c := range []struct {
		cfg                  *model.Config
		micro, parts, tokens int
		memory               int64
	}{
		{qwen(3584, 18944, 28, 28, 4), 16384, 1, 2432, 24 << 30}, {qwen(3584, 18944, 28, 28, 4), 4096, 1, 1792, 24 << 30},
		{qwen(3584, 18944, 28, 28, 4), 256, 1, 384, 24 << 30}, {qwen(5120, 13824, 48, 40, 8), 16384, 3, 4096, 24 << 30},
		{qwen(5120, 13824, 48, 40, 8), 256, 3, 2048, 24 << 30}, {config(6, false), 256, 1, 2048, 24 << 30},
		{qwen(3584, 18944, 28, 28, 4), 16384, 1, 7168, 0}, {qwen(5120, 13824, 48, 40, 8), 16384, 3, 8192, 80 << 30},
	} {
		q := Request{Planes: optim.AdamW{}.Planes, Config: c.cfg, Rows: 64, RowTokens: 256, Act: device.BF16, MicroBatchTokens: c.micro, HeadShards: c.parts, DeviceMemory: c.memory}
		r := resolve(t, q)
		if got := r.Spec.HeadChunk; got != c.tokens {
			t.Errorf("micro-batches of %d, %d parts: %d tokens at once, want %d", c.micro, c.parts, got, c.tokens)
		}
		if n := r.Spec.HeadBytes(); n > max(r.Spec.BlockForwardBytes(), 160<<20) {
			t.Errorf("micro-batches of %d, %d parts: the head takes %d bytes, a block %d", c.micro, c.parts, n, r.Spec.BlockForwardBytes())
		}
	}
	// A resumed run has its chunk size on record and keeps it under another budget.
	q := Request{Planes: optim.AdamW{}.Planes, Config: qwen(3584, 18944, 28, 28, 4), Rows: 64, RowTokens: 256, Act: device.BF16}
	first := resolve(t, q)
	q.MicroBatchTokens, q.ChunkTokens, q.HeadShards = first.Limits.MicroBatchTokens, first.Spec.ChunkTokens, first.Spec.Shards()
	q.DeviceMemory = 30 << 30
	if again := resolve(t, q); again.Spec.HeadChunk != first.Spec.HeadChunk {
		t.Errorf("%d tokens' logits at once, %d when resumed", first.Spec.HeadChunk, again.Spec.HeadChunk)
	}
}

// budgetRatio returns the factor between consecutive memory budgets that a test tries: ratio in
// long tests, its square in short tests.
func budgetRatio(t *testing.T, ratio float64) float64 {
	t.Helper()
	return math.Pow(ratio, float64(testkit.Every(t, 2)))
}

// TestRoomy: a device has ample memory if it has 40 GiB of its own or no limit.
func TestRoomy(t *testing.T) {
	for _, c := range []struct {
		q    Request
		want bool
	}{
		{Request{}, true}, {Request{DeviceMemory: 40 << 30}, true}, {Request{DeviceMemory: 40<<30 - 1}, false}, {Request{Unified: true, DeviceMemory: 80 << 30}, false},
	} {
		if got := c.q.roomy(); got != c.want {
			t.Errorf("%d bytes, unified %t: much memory %t", c.q.DeviceMemory, c.q.Unified, got)
		}
	}
}
