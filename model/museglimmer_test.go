package model

import (
	"math"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestMuseGlimmer: without keys of its own, a config has the class's defaults. Settings that the class ignores are
// errors.
func TestMuseGlimmer(t *testing.T) {
	muse := func(text map[string]any) map[string]any {
		return map[string]any{"architectures": []any{"MuseGlimmerForConditionalGeneration"}, "model_type": "muse_glimmer", "tie_word_embeddings": false,
			"text_config": with(map[string]any{"model_type": "muse_glimmer_text", "num_hidden_layers": 6, "rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 5e5}}, text)}
	}
	c := testkit.Must(parse(t, muse(nil)))(t)
	for b := range 6 {
		if full := b == 1 || b == 5; c.Turns(b) == full || (c.Window(b) == 0) != full || !c.NormsQK(b) {
			t.Errorf("block %d rotates: %t, has a window of %d, norms queries: %t", b, c.Turns(b), c.Window(b), c.NormsQK(b))
		}
	}
	if !c.EmbedNorm || !c.FinalNormPlain || c.NormOffset != 1 || c.OutputNormEps != 1e-8 || math.Abs(c.ScoreScale()*math.Sqrt(128)-3.87) > 1e-6 || c.LogitSoftcap != 20 {
		t.Errorf("%+v", c)
	}
	for key, tc := range map[string]struct {
		value any
		want  string
	}{
		"layer_rope_theta": {[]any{1e4, 5e5, 5e5, 5e5, 5e5, 0}, "layer_rope_theta: layer 0 has 10000, and another layer 500000: several bases are not supported"},
		"layer_types":      {[]any{"full_attention"}, "layer_types"},
		"qk_scale_factor":  {-1, "qk_scale_factor"},
	} {
		if _, err := parse(t, muse(map[string]any{key: tc.value})); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %s", err, tc.want)
		}
	}
	if _, err := parse(t, muse(map[string]any{"layer_rope_theta": []any{5e5}})); err == nil || !strings.Contains(err.Error(), "layer_rope_theta: 1 values for 6 layers") {
		t.Errorf("error %v", err)
	}
}
