package resume

import (
	"strings"
	"testing"

	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/model"
)

// TestTooWideHeads: a GPU's kernels reject packed heads that are too wide, including wide values. The CPU accepts
// them.
func TestTooWideHeads(t *testing.T) {
	for _, tc := range []struct {
		keys, values int
		device       string
		refused      bool
	}{{512, 512, "cuda", false}, {192, 512, "cuda", false}, {192, 513, "cuda", true}, {514, 128, "cuda", true}, {192, 513, "cpu", false}} {
		j := &startSearch{Start: Start{Inputs: &open.Inputs{Config: &config.Config{Device: tc.device, AttentionKernels: "portable"},
			Model: &model.Config{HeadDim: tc.keys, MLA: &model.MLA{ValueDim: tc.values}}}}}
		err := j.chooseAttention()
		if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "heads of at most 512 elements") {
			t.Errorf("%+v: got %v", tc, err)
		}
	}
}

// TestTooWideChosenKeys: a GPU's kernels for chosen keys reject rows that are too wide. The CPU accepts them.
func TestTooWideChosenKeys(t *testing.T) {
	for _, tc := range []struct {
		rank, rope int
		device     string
		refused    bool
	}{{512, 64, "cuda", false}, {520, 8, "cuda", true}, {512, 72, "cuda", true}, {520, 72, "cpu", false}} {
		j := &startSearch{Start: Start{Inputs: &open.Inputs{Config: &config.Config{Device: tc.device, AttentionKernels: "portable"},
			Model: &model.Config{HeadDim: 128, MLA: &model.MLA{ValueDim: 128, KVRank: tc.rank, RopeDim: tc.rope, Indexer: &model.Indexer{}}}}}}
		err := j.chooseAttention()
		if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "a kv_lora_rank of at most 512 and, with qk_rope_head_dim, 576") {
			t.Errorf("%+v: got %v", tc, err)
		}
	}
}

// TestOlderRun: the configuration of an old run may lack the keys for attention kernels and
// micro-batch order. Such a run used the portable kernels and the zigzag order, which reverses the
// micro-batches in every layer.
func TestOlderRun(t *testing.T) {
	older := config.Default()
	fillOlder(older)
	newer := config.Default()
	newer.AttentionKernels, newer.MicroBatchOrder = "sm90a", "lanes"
	fillOlder(newer)
	for _, c := range []struct{ got, want string }{{older.AttentionKernels, "portable"}, {older.MicroBatchOrder, "zigzag"},
		{newer.AttentionKernels, "sm90a"}, {newer.MicroBatchOrder, "lanes"}} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}
