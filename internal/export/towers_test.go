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
		"mistral3": {map[string]any{"general.architecture": "llama", "llama.rope.dimension_count": 6, "llama.attention.sliding_window": 5}, false, "sliding window"},
		"ministral3": {map[string]any{"general.architecture": "mistral3", "mistral3.attention.temperature_scale": 0.7, "mistral3.rope.scaling.factor": 4,
			"mistral3.rope.scaling.original_context_length": 4}, true, ""},
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

// TestTemperRefused: without yarn llama.cpp does not know where queries grow.
func TestTemperRefused(t *testing.T) {
	p := &plan{s: &settings{file: "c", vals: map[string]any{}}, family: &family{arch: "mistral3"},
		rope: rope{kind: "linear", params: &settings{vals: map[string]any{"llama_4_scaling_beta": 0.5}}}}
	if p.tempers(); p.s.err == nil || !strings.Contains(p.s.err.Error(), "llama_4_scaling_beta: 0.5, without yarn") {
		t.Error(p.s.err)
	}
	s := &settings{vals: map[string]any{"model_type": "ministral3", "rope_scaling": map[string]any{"type": "yarn", "rope_theta": 7.0}}}
	if _, err := findFamily(s); err != nil || s.readRope().theta != 7 {
		t.Errorf("%v, %v: the default goes before rope_scaling", s.vals, err)
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
		if got := (&plan{family: p.family, headDim: 16}).still([]int32{2, 3, 3}); !slices.Equal(got, []int{6}) && want != nil {
			t.Errorf("%s: %v of fewer for the time", arch, got)
		}
	}
}
