package model

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// qwen3Next has the relevant keys of the published 80B model's config.json.
var qwen3Next = map[string]any{"architectures": []any{"Qwen3NextForCausalLM"}, "model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048,
	"intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "rope_theta": 1e7,
	"partial_rotary_factor": 0.25, "rope_scaling": nil, "max_position_embeddings": 262144, "full_attention_interval": 4, "attention_bias": false,
	"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
	"decoder_sparse_step": 1, "mlp_only_layers": []any{}, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
	"shared_expert_intermediate_size": 512, "norm_topk_prob": true, "use_sliding_window": false, "tie_word_embeddings": false}

// TestRecurrentBlocks: the published configuration of Qwen3-Next has 79.7 billion parameters and 36
// recurrent blocks. The same blocks written as layer_types, or left to the class's defaults, give
// the same model.
func TestRecurrentBlocks(t *testing.T) {
	testkit.NotShort(t)
	types := make([]any, 48)
	for b := range types {
		if types[b] = "linear_attention"; b%4 == 3 {
			types[b] = "full_attention"
		}
	}
	less := maps.Clone(qwen3Next)
	for key := range less {
		if strings.HasPrefix(key, "linear_") || strings.Contains(key, "expert") && key != "architectures" || key == "full_attention_interval" || key == "partial_rotary_factor" ||
			key == "head_dim" || key == "decoder_sparse_step" || key == "norm_topk_prob" || key == "mlp_only_layers" {
			less[key] = nil
		}
	}
	named := maps.Clone(qwen3Next)
	named["full_attention_interval"], named["layer_types"] = nil, types
	for name, changes := range map[string]map[string]any{"published": qwen3Next, "defaults": less, "layer_types": named} {
		c, err := parse(t, changes)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := c.Params(); n != 79674391296 {
			t.Errorf("%s: %d parameters", name, n)
		}
		layers := c.Layers()
		testkit.Check(t, name,
			testkit.Is("recurrent blocks", c.RecurrentBlocks(), 36),
			testkit.Is("block 3 is recurrent", c.IsRecurrent(3), false),
			testkit.Is("block 46 is recurrent", c.IsRecurrent(46), true),
			testkit.Is("layer 1", layers[1].Kind, Mixer),
			testkit.Is("layer 7", layers[7].Kind, Attention),
			testkit.Is("layer 8", layers[8].Kind, MoE),
			testkit.Is("block 0 turns", c.Turns(0), false),
			testkit.Is("block 3 turns", c.Turns(3), true),
			testkit.Is("pairs of block 0", c.BlockPairs(0, 10), 0),
			testkit.Is("attended pairs", c.AttendedPairs(10), 12*55),
			testkit.Is("NormTopKProb", c.NormTopKProb, true),
			testkit.Is("Rope.Partial", c.Rope.Partial, 0.25),
			testkit.Is("OutputGate", c.OutputGate, true),
		)
		// Besides its matrix products a token takes 36 convolutions of 8192 channels and 4 taps,
		// and 36·32 states of 128·128 elements at 6 FLOPs each.
		if got, want := c.ForwardFLOPs(1, 0)-2*float64(c.MatrixParams()), float64(36*(2*4*8192+6*32*128*128)); got != want {
			t.Errorf("%s: %g FLOPs of recurrences, want %g", name, got, want)
		}
		if got, want := c.BackwardFLOPs(3, 7), 2*c.ForwardFLOPs(3, 7); got != want {
			t.Errorf("%s: %g FLOPs backward, want %g", name, got, want)
		}
	}
}

// TestRecurrentBackwardFLOPs: gated delta nets below the lowest trained tensor have no backward
// FLOPs. Attended (query, key) pairs count only in blocks with attention.
func TestRecurrentBackwardFLOPs(t *testing.T) {
	testkit.NotShort(t)
	c := testkit.Must(parse(t, qwen3Next))(t)
	testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{"embed_tokens", "model.norm"}}))
	all := c.BackwardFLOPs(1, 12)
	testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{"embed_tokens", `model\.norm`, `layers\.[0-3]\.`}}))
	of := 2.0 * float64(3*c.RecurrenceFLOPs()) // three recurrences
	of += 2 * c.PairFLOPs() * 12 / 12          // one attention of twelve
	rest := all - c.BackwardFLOPs(1, 12) - of
	var products float64
	for _, l := range c.Layers()[1:9] {
		for _, p := range l.Params {
			if n := float64(p.Elems()); p.Dims == 2 {
				if p.Part > 0 && p.Part <= c.NumExperts {
					n *= float64(c.NumExpertsPerTok) / float64(c.NumExperts)
				}
				products += 4 * n
			}
		}
	}
	if math.Abs(rest-products) > 1e-9*products {
		t.Errorf("%g FLOPs of products, want %g", rest, products)
	}
}

// TestRecurrencesRefused: sizes and layer_types that a gated delta net cannot have are errors that
// name the key.
func TestRecurrencesRefused(t *testing.T) {
	for _, c := range []struct {
		key  string
		v    any
		want string
	}{
		{"linear_num_value_heads", 24, "24 heads do not share 16 key heads evenly"},
		{"linear_key_head_dim", 256, "linear_key_head_dim: 256"},
		{"linear_num_value_heads", 128, "linear_num_value_heads: 128"},
		{"linear_conv_kernel_dim", 9, "linear_conv_kernel_dim: 9"},
		{"layer_types", []any{"full_attention"}, "1 of them for 48 layers"},
		{"layer_types", slices.Repeat([]any{"sliding_attention"}, 48), `layer 0 is "sliding_attention"`},
		{"num_local_experts", 4, "num_local_experts"},
	} {
		changes := maps.Clone(qwen3Next)
		changes[c.key] = c.v
		if _, err := parse(t, changes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.key, err, c.want)
		}
	}
}

// TestRecurrentPlaces: Qwen3-Next's tensors interleave rows of queries, keys, values and gates by
// key heads, and attention's query and gate by heads. Each parameter's rows are found there. The
// convolution's tensor has three dimensions.
func TestRecurrentPlaces(t *testing.T) {
	c := testkit.Must(parse(t, map[string]any{"architectures": []any{"Qwen3NextForCausalLM"}, "model_type": "qwen3_next", "hidden_size": 10, "num_hidden_layers": 2,
		"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 4, "partial_rotary_factor": 0.5, "layer_types": []any{"linear_attention", "full_attention"},
		"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3, "linear_value_head_dim": 5, "num_experts": 0, "attention_bias": true}))(t)
	const recur, attn = "model.layers.0.linear_attn.", "model.layers.1.self_attn."
	want := map[string]struct {
		tensor  string
		rows    int64
		at, row int64 // row 4 is that row of the tensor
	}{
		recur + "q.weight": {recur + "in_proj_qkvz.weight", 52, 4, 26 + 1}, recur + "k.weight": {recur + "in_proj_qkvz.weight", 52, 4, 26 + 3 + 1},
		recur + "v.weight": {recur + "in_proj_qkvz.weight", 52, 11, 26 + 6 + 1}, recur + "z.weight": {recur + "in_proj_qkvz.weight", 52, 11, 26 + 16 + 1},
		recur + "b.weight": {recur + "in_proj_ba.weight", 8, 2, 4}, recur + "a.weight": {recur + "in_proj_ba.weight", 8, 3, 4 + 2 + 1},
		attn + "query.weight": {attn + "q_proj.weight", 24, 5, 8 + 1}, attn + "gate.weight": {attn + "q_proj.weight", 24, 5, 8 + 4 + 1},
		attn + "gate.bias": {attn + "q_proj.bias", 24, 9, 16 + 4 + 1},
	}
	found := 0
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for i, s := range p.Stored {
				w, ok := want[s.Name]
				if !ok {
					continue
				}
				found++
				if shape := p.TensorShape(i); s.Tensor() != w.tensor || shape[0] != w.rows || p.ElemAt(i, int(w.at), 0) != w.row*int64(p.Cols) {
					t.Errorf("%s: row %d is element %d of %s %v", s.Name, w.at, p.ElemAt(i, int(w.at), 0), s.Tensor(), shape)
				}
			}
			if p.Role == RoleRecurTaps && !slices.Equal(p.StoredShape(0), []int64{32, 1, 4}) {
				t.Errorf("the convolution is %v", p.StoredShape(0))
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d tensors", found, len(want))
	}
}
