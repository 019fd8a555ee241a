package export

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTowers: of models with vision towers the language model is written, with what llama.cpp wants to know about positions
// and layers that images have.
func TestTowers(t *testing.T) {
	for name, want := range map[string]struct {
		keys  map[string]any
		head  bool
		notes string // "" for none of its own
	}{
		"mistral3":   {map[string]any{"general.architecture": "llama", "llama.rope.dimension_count": 6, "llama.attention.sliding_window": 5}, false, "sliding window"},
		"qwen2vl":    {map[string]any{"general.architecture": "qwen2vl", "qwen2vl.rope.dimension_sections": []int32{1, 1, 0, 0}}, true, ""},
		"qwen25vl":   {map[string]any{"general.architecture": "qwen2vl", "qwen2vl.rope.scaling.factor": 4, "qwen2vl.rope.dimension_sections": []int32{1, 1, 0, 0}}, true, "sliding window"},
		"qwen3vl":    {map[string]any{"general.architecture": "qwen3vl", "qwen3vl.rope.dimension_sections": []int32{1, 1, 1, 0}, "qwen3vl.n_deepstack_layers": 1}, false, ""},
		"qwen3vlmoe": {map[string]any{"general.architecture": "qwen3vlmoe", "qwen3vlmoe.n_deepstack_layers": 1, "qwen3vlmoe.expert_count": 4}, true, ""},
	} {
		f, s := exportGGUF(t, filepath.Join("../train/testdata/recordings", name, "model"), F32)
		wantKeys(t, f, want.keys)
		head, tower := false, false
		for _, x := range f.Tensors {
			head, tower = head || x.Name == "output.weight", tower || strings.HasPrefix(x.Name, "v.")
		}
		if head != want.head || tower {
			t.Errorf("%s: a head: %t, a tower: %t", name, head, tower)
		}
		if got := strings.Join(s.Notes, " "); !strings.Contains(got, want.notes) || want.notes == "" && len(s.Notes) != 2 {
			t.Errorf("%s: notes %q", name, s.Notes)
		}
	}
}

// TestStill: which pairs of a head's elements llama.cpp leaves alone in texts: of published sections two, of even ones none.
func TestStill(t *testing.T) {
	for arch, want := range map[string][]int{"qwen3vl": {61, 62}, "qwen3vlmoe": {61, 62}, "qwen2vl": nil} {
		p := &plan{family: &family{arch: arch}, headDim: 128}
		if got := p.still([]int32{24, 20, 20}); !slices.Equal(got, want) {
			t.Errorf("%s: %v", arch, got)
		}
		if got := (&plan{family: p.family, headDim: 24}).still([]int32{4, 4, 4}); got != nil {
			t.Errorf("%s: %v of even sections", arch, got)
		}
	}
}
