package model

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

func preset(t *testing.T, name string) *Config {
	t.Helper()
	c := testkit.Must(Preset(name))(t)
	return c
}

// TestParams: presets have as many parameters as the published models.
func TestParams(t *testing.T) {
	for name, want := range map[string]int64{
		"llama-1b": 1235814400, "llama-3b": 3212749824, "llama-7b": 6738415616, "llama-8b": 8030261248,
		"llama-13b": 13015864320, "llama-70b": 70553706496,
		"qwen2.5-0.5b": 494032768, "qwen2.5-1.5b": 1543714304, "qwen2.5-3b": 3085938688, "qwen2.5-7b": 7615616512,
		"qwen2.5-14b": 14770033664, "qwen2.5-32b": 32763876352, "qwen2.5-72b": 72706203648,
		"qwen3-0.6b": 596049920, "qwen3-4b": 4022468096, "qwen3-8b": 8190735360, "qwen3-14b": 14768307200,
		"mistral-7b": 7241732096, "gemma3-1b": 999885952, "gemma3-4b": 3880263168, "gemma3-12b": 11766034176,
		"gemma3-27b": 27009346304, "phi3-mini": 3821079552, "phi4": 14659507200,
		"qwen3-30b-a3b": 30532122624, "qwen3-235b-a22b": 235093634560, "qwen3-32b": 32762123264, "llama-405b": 405853388800,
		"olmo2-7b": 7298617344, "olmo3-7b": 7298011136, "smollm3-3b": 3075098624, "granite3.1-2b": 2533531648, "granite3.1-8b": 8170848256,
		"glm4-9b": 9400279040, "mixtral-8x7b": 46702792704, "gpt2": 124439808, "gpt2-medium": 354823168, "gpt2-large": 774030080,
		"gpt2-xl": 1557611200, "pythia-160m": 162322944, "pythia-1b": 1011781632, "pythia-6.9b": 6857302016,
		// These are the numbers that transformers counts in its classes for the same sizes.
		"qwen3.5-4b": 4205751296, "qwen3.5-9b": 8953803264, "qwen3.5-27b": 26895998464, "qwen3.5-35b-a3b": 34660610688, "minimax-m2": 228689764864, // with its biases of choice, which are buffers there
		"nemotron-3-nano": 31577940288,
	} {
		c := preset(t, name)
		if got := c.Params(); got != want {
			t.Errorf("%s: %d parameters, want %d", name, got, want)
		}
		var table int64
		for _, l := range c.Layers() {
			table += l.Elems()
		}
		if table != want {
			t.Errorf("%s: %d parameters in the table, want %d", name, table, want)
		}
	}
}

// TestActiveParams: MatrixParams counts only the experts that one token passes. Together with the
// embedding this gives the "a3b" and "a22b" (active parameters) in the models' names.
func TestActiveParams(t *testing.T) {
	for name, want := range map[string]float64{"qwen3-30b-a3b": 3.35e9, "qwen3-235b-a22b": 22.2e9, "qwen3.5-35b-a3b": 3.45e9} {
		c := preset(t, name)
		if got := float64(c.MatrixParams() + c.EmbedParam().Elems()); math.Abs(got-want) > 0.01*want {
			t.Errorf("%s: %g parameters active, want %g", name, got, want)
		}
	}
}

// TestParamsOfPapers: presets have the numbers of parameters that the papers give, in total and per
// token. gpt-oss counts the lm_head as active, but not the embedding (arXiv:2508.10925, table 1).
// DeepSeek-V3 has 671B and 37B (arXiv:2412.19437); its published tensors without multi-token
// prediction have 671026419200 elements. V2-Lite has 15706484224 (15.7B and 2.4B in
// arXiv:2405.04434).
func TestParamsOfPapers(t *testing.T) {
	for _, tc := range []struct {
		name               string
		all, active        float64
		allWithin, rounded float64
	}{
		{"gpt-oss-20b", 20.91e9, 3.61e9, 0.0005, 0.005e9},
		{"gpt-oss-120b", 116.83e9, 5.13e9, 0.0001, 0.005e9},
		{"deepseek-v3", 671026419200, 37e9, 0, 0.5e9},
		{"deepseek-v2-lite", 15706484224, 2.4e9, 0, 0.1e9},
		{"glm-4.7-flash", 30e9, 3e9, 0.01, 0.9e9},
		{"kimi-linear-48b-a3b", 48e9, 3e9, 0.03, 0.5e9},
		{"glm-5", 744e9, 40e9, 0.001, 1e9},
	} {
		c := preset(t, tc.name)
		if got := float64(c.Params()); math.Abs(got-tc.all) > tc.allWithin*tc.all {
			t.Errorf("%s: %.0f parameters, want %.0f", tc.name, got, tc.all)
		}
		if got := float64(c.MatrixParams()); math.Abs(got-tc.active) > tc.rounded {
			t.Errorf("%s: %.0f parameters active, want %.0f", tc.name, got, tc.active)
		}
		var table int64
		for _, l := range c.Layers() {
			table += l.Elems()
		}
		if table != c.Params() {
			t.Errorf("%s: %d parameters in the table, and %d counted", tc.name, table, c.Params())
		}
	}
}

// TestPairsOfLatentAttention: a (query, key) pair costs 2·192 FLOPs for its score, over a key's
// width, and 2·128 for its value, per head. With the backward, which takes twice the forward, that
// is 6·heads·(192+128) FLOPs.
func TestPairsOfLatentAttention(t *testing.T) {
	c := preset(t, "deepseek-v3")
	if got, want := c.FLOPs(0, 1), 6.0*128*(192+128); got != want {
		t.Errorf("a pair takes %g FLOPs, want %g", got, want)
	}
	if got, want := c.QKVProducts(0), int64(7168*1536+1536*128*192+7168*(512+64)+512*128*256); got != want {
		t.Errorf("q, k and v take %d multiply-adds, want %d", got, want)
	}
	wide := deepSeekV3(t, map[string]any{"v_head_dim": 200, "attention_bias": true})
	if got, want := wide.FLOPs(0, 1), 6.0*128*(192+200); got != want {
		t.Errorf("a pair with wide values takes %g FLOPs, want %g", got, want)
	}
	if got, want := wide.QKVProducts(0), int64(7168*1536+1536*128*192+7168*(512+64)+512*128*(128+200)); got != want {
		t.Errorf("q, k and wide v take %d multiply-adds, want %d", got, want)
	}
}

// TestPresetsOfQwen: besides sizes, presets have the norm epsilon, positions and end token of the
// published config.json. Qwen2.5 presets are base models, Qwen3 presets chat models.
func TestPresetsOfQwen(t *testing.T) {
	for name, want := range map[string]struct {
		eps            float32
		positions, eos int
	}{
		"qwen2.5-0.5b": {1e-6, 32768, 151643}, "qwen2.5-1.5b": {1e-6, 131072, 151643}, "qwen2.5-3b": {1e-6, 32768, 151643}, "qwen2.5-7b": {1e-6, 131072, 151643},
		"qwen2.5-14b": {1e-5, 131072, 151643}, "qwen2.5-32b": {1e-5, 131072, 151643}, "qwen2.5-72b": {1e-5, 131072, 151643},
		"qwen3-0.6b": {1e-6, 40960, 151645}, "qwen3-32b": {1e-6, 40960, 151645}, "qwen3-30b-a3b": {1e-6, 40960, 151645},
	} {
		c := preset(t, name)
		if c.RMSNormEps != want.eps || c.MaxPositions != want.positions || !slices.Equal(c.EOS, []int{want.eos}) {
			t.Errorf("%s: eps %g, %d positions, text ends with %d; want %v", name, c.RMSNormEps, c.MaxPositions, c.EOS, want)
		}
	}
}

func TestAliases(t *testing.T) {
	for alias, name := range aliases {
		if presets[alias] != nil || !reflect.DeepEqual(preset(t, alias), preset(t, name)) {
			t.Errorf("%s is not %s", alias, name)
		}
	}
}

func TestLayers(t *testing.T) {
	c := preset(t, "tiny")
	c.QKVBias, c.OBias, c.MLPBias, c.QKNorm = true, true, true, true
	layers := c.Layers()
	if len(layers) != 4 {
		t.Fatalf("%d layers", len(layers))
	}
	seen := map[string]bool{}
	for i, l := range layers {
		if l.Index != i {
			t.Errorf("layer %d has index %d", i, l.Index)
		}
		for _, p := range l.Params {
			row := 0
			for _, part := range p.Stored {
				if seen[part.Name] {
					t.Errorf("%s appears twice", part.Name)
				}
				seen[part.Name] = true
				if part.Row != row {
					t.Errorf("%s starts at row %d, want %d", part.Name, part.Row, row)
				}
				row += part.Rows
			}
			if row != p.Rows {
				t.Errorf("%s: the parts have %d rows, the parameter %d", p.Role, row, p.Rows)
			}
		}
	}
	var block []string
	for _, p := range layers[1].Params {
		names := []string{string(p.Role)}
		for i, part := range p.Stored {
			names = append(names, strings.TrimPrefix(part.Name, "model.layers.0."))
			if shape := p.StoredShape(i); len(shape) != p.Dims || shape[0] != int64(part.Rows) {
				t.Errorf("%s: shape %v", part.Name, shape)
			}
		}
		block = append(block, strings.Join(names, " "))
	}
	if want := blockWithBiases; !slices.Equal(block, want) {
		t.Errorf("got %q", block)
	}
}

var blockWithBiases = []string{
	"attn_norm input_layernorm.weight",
	"qkv self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight",
	"qkv_bias self_attn.q_proj.bias self_attn.k_proj.bias self_attn.v_proj.bias",
	"q_norm self_attn.q_norm.weight", "k_norm self_attn.k_norm.weight",
	"o self_attn.o_proj.weight", "o_bias self_attn.o_proj.bias",
	"mlp_norm post_attention_layernorm.weight",
	"gate_up mlp.gate_proj.weight mlp.up_proj.weight",
	"gate_up_bias mlp.gate_proj.bias mlp.up_proj.bias",
	"down mlp.down_proj.weight", "down_bias mlp.down_proj.bias",
}

func TestTiedHead(t *testing.T) {
	c := preset(t, "tiny")
	untied := c.Params()
	c.TieEmbeddings = true
	head := c.Layouts(true)[3]
	if !head.Tied || len(head.Tensors) != 2 || !head.Tensors[1].Ref || head.Tensors[1].Rows != 256 {
		t.Errorf("head %+v", head)
	}
	if got := untied - c.Params(); got != 256*64 {
		t.Errorf("tying saves %d parameters", got)
	}
}

func TestFLOPs(t *testing.T) {
	c := preset(t, "tiny")
	block := (4+2*2)*16*64 + 64*4*16 + 3*64*176
	want := 10*6*float64(2*block+256*64) + 12*4*16*100
	for _, tied := range []bool{false, true} {
		c.TieEmbeddings = tied
		if got := c.FLOPs(10, 100); math.Abs(got-want) > 1e-6*want {
			t.Errorf("tied %v: got %g, want %g", tied, got, want)
		}
	}
}

func TestFromInline(t *testing.T) {
	c, err := FromInline(map[string]any{"preset": "quickstart", "num_hidden_layers": uint64(4), "tie_word_embeddings": true}, "x")
	if err != nil || c.NumLayers != 4 || c.HiddenSize != 256 || !c.TieEmbeddings || c.Arch != "LlamaForCausalLM" {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, tc := range []struct {
		m    map[string]any
		want string
	}{
		{map[string]any{"hiden_size": 64}, `t.yaml:3: model: hiden_size: unknown key; did you mean "hidden_size"?`},
		{map[string]any{"xyzzy": 64}, `t.yaml:3: model: xyzzy: unknown key`},
		{map[string]any{"preset": "quikstart"}, `t.yaml:3: model: preset: no preset is called "quikstart"; did you mean "quickstart"? (presets: `},
		{map[string]any{"preset": "tiny", "rope_parameters": map[string]any{"theta": 1}}, `t.yaml:3: model: rope_parameters: theta: unknown key`},
		{nil, "t.yaml:3: model: vocab_size: missing"},
	} {
		_, err := FromInline(tc.m, "t.yaml:3: model")
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
	if _, err := Preset("lama-7b"); err == nil || !strings.Contains(err.Error(), `did you mean "llama-7b"`) {
		t.Errorf("got %v", err)
	}
}

func TestInitRow(t *testing.T) {
	c := preset(t, "tiny")
	c.QKVBias = true
	block := c.Layers()[1]
	qkv := block.Params[1]
	all := make([]float32, qkv.Elems())
	InitRow(c, qkv, 0, 42, all)
	one := make([]float32, qkv.Cols)
	for row := qkv.Rows - 1; row >= 0; row -= 3 {
		InitRow(c, qkv, row, 42, one)
		if !slices.Equal(one, all[row*qkv.Cols:(row+1)*qkv.Cols]) {
			t.Fatalf("row %d differs when it is asked for alone", row)
		}
	}
	// The first value is pinned: a change of the generator would give other initial weights for the
	// same seed.
	if all[0] != goldenInit {
		t.Errorf("first value %v, want %v", all[0], goldenInit)
	}
	other := make([]float32, len(all))
	InitRow(c, qkv, 0, 43, other)
	if slices.Equal(all, other) {
		t.Error("the seed does not count")
	}
	if slices.Equal(all[:qkv.Cols], all[qkv.Cols:2*qkv.Cols]) || all[0] == all[qkv.Stored[1].Row*qkv.Cols] {
		t.Error("rows or tensors repeat")
	}
	moments(t, all, c.InitializerRange)

	InitRow(c, block.Params[0], 0, 42, one)
	if slices.Min(one) != 1 || slices.Max(one) != 1 {
		t.Error("a norm does not start at 1")
	}
	c.NormOffset = 1
	if InitRow(c, block.Params[0], 0, 42, one); slices.Min(one) != 0 || slices.Max(one) != 0 {
		t.Error("a norm of 1+w does not start at 1")
	}
	c.NormOffset = 0
	InitRow(c, block.Params[2], 0, 42, one)
	if slices.Min(one) != 0 || slices.Max(one) != 0 {
		t.Error("a bias does not start at 0")
	}
	c.PAD = []int{5}
	rows := make([]float32, 3*c.HiddenSize)
	InitRow(c, c.EmbedParam(), 4, 42, rows)
	h := c.HiddenSize
	if slices.Max(rows[h:2*h]) != 0 || slices.Max(rows[:h]) == 0 || slices.Max(rows[2*h:]) == 0 {
		t.Error("the padding row alone starts at 0")
	}
}

const goldenInit = float32(-0.01919509)

// moments checks that mean, deviation and kurtosis of the n values x are those of N(0, sigma),
// within six standard errors each: σ/√n, σ/√2n, and √(96/n) for the kurtosis.
func moments(t *testing.T, x []float32, sigma float64) {
	t.Helper()
	var sum, sq, four float64
	for _, v := range x {
		z := float64(v) / sigma
		sum, sq, four = sum+z, sq+z*z, four+z*z*z*z
	}
	n := float64(len(x))
	mean, std, kurt := sum/n, math.Sqrt(sq/n), four/n
	if math.Abs(mean) > 6/math.Sqrt(n) || math.Abs(std-1) > 6/math.Sqrt(2*n) || math.Abs(kurt-3) > 6*math.Sqrt(96/n) {
		t.Errorf("mean %g, deviation %g, fourth moment %g of %g values", mean, std, kurt, n)
	}
}

func BenchmarkInitRow(b *testing.B) {
	c, err := Preset("llama-7b")
	if err != nil {
		b.Fatal(err)
	}
	p := c.Layers()[1].Params[1]
	dst := make([]float32, p.Cols)
	b.SetBytes(int64(4 * len(dst)))
	for i := range b.N {
		InitRow(c, p, i%p.Rows, 1, dst)
	}
}
