package checkpoint

import (
	"path/filepath"
	"strings"
	"testing"

	"mt/model"
)

// grouped is a model some of whose tensors are always saved in fp32.
func grouped(t *testing.T) *model.Config {
	t.Helper()
	c, err := model.FromInline(map[string]any{"model_type": "glm4_moe", "vocab_size": 37, "hidden_size": 14, "intermediate_size": 11, "num_hidden_layers": 2,
		"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 5}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSavedF32: what is always saved in fp32 is so in a checkpoint whose weights are in bf16, and comes back as it
// was; it has no lower halves, in a file of its own or in a linked one.
func TestSavedF32(t *testing.T) {
	for _, linked := range []bool{false, true} {
		c, dir := grouped(t), t.TempDir()
		from, to := newLayers(c, true), newLayers(c, true)
		fillLayers(from, 4)
		o := options(c, from, BF16)
		if linked {
			for range from {
				o.Linked = append(o.Linked, true)
			}
			from = inExtents(t, from, o, dir)
		}
		if err := save(dir, from, o, testState); err != nil {
			t.Fatal(err)
		}
		saved := filepath.Join(dir, "checkpoint-20")
		dtypes, _ := tensorsOf(t, saved)
		kept := 0
		for name, dtype := range dtypes {
			want := "BF16"
			if strings.HasSuffix(name, "e_score_correction_bias") {
				kept, want = kept+1, "F32"
			}
			if dtype != want {
				t.Errorf("%s is %s, want %s", name, dtype, want)
			}
		}
		if kept != c.ExpertBlocks() {
			t.Errorf("%d tensors are kept in fp32, want one for each of %d blocks", kept, c.ExpertBlocks())
		}
		if _, err := Load(saved, to, nil); err != nil {
			t.Fatal(err)
		}
		sameValues(t, values(to), values(from))
		if n := treeBytes(saved); n > o.CheckpointBytes() {
			t.Errorf("%d bytes, at most %d were expected", n, o.CheckpointBytes())
		}
	}
}

// TestCopyKeepsF32: a copy in bf16 leaves what it is told to leave in fp32.
func TestCopyKeepsF32(t *testing.T) {
	c := config(t, nil)
	w, err := OpenWeights(fakeModel(t, c, "F32", counted, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const kept = "model.layers.1.input_layernorm.weight"
	for _, d := range []DType{"", BF16} {
		out := t.TempDir()
		if _, err := CopyModel(t.Context(), out, w, CopyOptions{DType: d, F32: map[string]bool{kept: true}}); err != nil {
			t.Fatal(err)
		}
		if dtypes, _ := tensorsOf(t, out); dtypes[kept] != "F32" || d == BF16 && dtypes["model.norm.weight"] != "BF16" {
			t.Errorf("%q: %v", d, dtypes)
		}
	}
}
