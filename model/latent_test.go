package model

import (
	"maps"
	"math"
	"slices"
	"testing"
)

// latent is DeepSeek-V3's shape with some keys set otherwise.
func latent(t *testing.T, keys map[string]any) *Config {
	t.Helper()
	m := maps.Clone(presets["deepseek-v3"])
	maps.Copy(m, keys)
	c, err := FromInline(m, "x")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWholeQueries: without a width of their narrow vector, queries are made of the hidden state.
func TestWholeQueries(t *testing.T) {
	c := latent(t, map[string]any{"q_lora_rank": nil})
	var roles []string
	for _, p := range (blockNames{c, 0}).attention() {
		roles = append(roles, string(p.Role)+" "+p.Stored[0].Name)
	}
	in := "model.layers.0.self_attn."
	want := []string{"attn_norm model.layers.0.input_layernorm.weight", "q_b " + in + "q_proj.weight", "kv_a " + in + "kv_a_proj_with_mqa.weight",
		"kv_a_norm " + in + "kv_a_layernorm.weight", "kv_b " + in + "kv_b_proj.weight", "o " + in + "o_proj.weight"}
	if !slices.Equal(roles, want) {
		t.Errorf("got %q, want %q", roles, want)
	}
	if got, want := c.QKVProducts(), int64(7168*128*192+7168*(512+64)+512*128*256); got != want {
		t.Errorf("q, k and v take %d multiply-adds, want %d", got, want)
	}
}

// TestHeadsOfLatentAttention: which elements of a head turn, and what scores are multiplied by.
// The temperature is that of transformers' modeling_deepseek_v3: factor 40, mscale_all_dim 1.
func TestHeadsOfLatentAttention(t *testing.T) {
	c := latent(t, nil)
	m := 1 + 0.1*math.Log(40)
	if got, want := c.ScoreScale(), m*m/math.Sqrt(192); math.Abs(got-want) > 1e-12 {
		t.Errorf("scores are multiplied by %g, want %g", got, want)
	}
	if c.HeadDim != 192 || c.ValueDim() != 128 || c.RopeAt() != 128 || c.Rotary(0) != 64 || c.OutputCols() != 128*128 {
		t.Errorf("heads of %d elements and %d of a value; %d turn, from %d on; %d columns of output", c.HeadDim, c.ValueDim(), c.Rotary(0), c.RopeAt(), c.OutputCols())
	}
	plain := latent(t, map[string]any{"rope_scaling": nil})
	if got, want := plain.ScoreScale(), 1/math.Sqrt(192); math.Abs(got-want) > 1e-12 {
		t.Errorf("scores are multiplied by %g, want %g", got, want)
	}
}

// TestLatentNormsStartAtOne: of the parameters of latent attention norms alone start at 1.
func TestLatentNormsStartAtOne(t *testing.T) {
	c := latent(t, nil)
	for _, p := range (blockNames{c, 0}).latent() {
		row := make([]float32, p.Cols)
		InitRow(c, p, 0, 42, row)
		if one := row[0] == 1; one != (p.Role == RoleQANorm || p.Role == RoleKVANorm) {
			t.Errorf("%s starts with %g", p.Role, row[0])
		}
	}
}
