package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

// aheadBlock has names of a module for multi-token prediction in the layout of DeepSeek-V3, which keeps it as the block
// after the last one.
var aheadBlock = []string{"eh_proj.weight", "enorm.weight", "hnorm.weight", "embed_tokens.weight", "shared_head.norm.weight", "shared_head.head.weight",
	"input_layernorm.weight", "self_attn.kv_b_proj.weight", "self_attn.indexer.k_norm.bias", "mlp.gate.weight", "mlp.gate.e_score_correction_bias",
	"mlp.experts.0.up_proj.weight", "mlp.shared_experts.down_proj.weight"}

// aheadModule has names of such a module as Qwen3-Next, Qwen3.5 and Nemotron-H keep it, beside the model.
var aheadModule = []string{"fc.weight", "norm.weight", "pre_fc_norm_hidden.weight", "pre_fc_norm_embedding.weight", "layers.0.input_layernorm.weight",
	"layers.0.self_attn.q_proj.weight", "layers.0.mlp.gate.weight", "layers.0.mlp.experts.0.gate_proj.weight", "layers.0.mlp.shared_expert.up_proj.weight"}

// aheadOf lists, by model type, the names of tensors for multi-token prediction in a class's published directories, for
// a model of two blocks. Sources: the classes' _keys_to_ignore_on_load_unexpected in Transformers 5.24, and vLLM's
// deepseek_mtp.py, ernie_mtp.py, qwen3_next_mtp.py and minimax_m2.py.
var aheadOf = map[string]struct {
	names   []string
	experts string // the config's key for the number of experts; "": the model is dense
}{
	"deepseek_v3": {under("model.layers.2.", aheadBlock), "n_routed_experts"}, "deepseek_v32": {under("model.layers.2.", aheadBlock), "n_routed_experts"},
	"glm4_moe": {under("model.layers.2.", aheadBlock), "n_routed_experts"}, "glm4_moe_lite": {under("model.layers.2.", aheadBlock), "n_routed_experts"},
	"glm_moe_dsa": {under("model.layers.2.", aheadBlock), "n_routed_experts"}, "kimi_linear": {under("model.layers.2.", aheadBlock), "num_experts"},
	"minimax_m2": {under("model.layers.2.", aheadBlock), "num_local_experts"},
	"hy_v3":      {under("model.layers.2.", append(slices.Clone(aheadBlock), "final_layernorm.weight", "mlp.expert_bias")), "num_experts"},
	"qwen3_next": {under("mtp.", aheadModule), "num_experts"}, "qwen3_5_text": {under("mtp.", aheadModule), ""}, "qwen3_5_moe_text": {under("mtp.", aheadModule), "num_experts"},
	"nemotron_h": {under("mtp.", append(slices.Clone(aheadModule), "layers.0.mixer.q_proj.weight", "layers.0.eh_proj.weight")), "n_routed_experts"},
	"ernie4_5_moe": {under("model.", []string{"mtp_block.0.input_layernorm.weight", "mtp_block.0.self_attn.q_proj.weight", "mtp_block.0.mlp.up_proj.weight",
		"mtp_emb_norm.0.weight", "mtp_hidden_norm.0.weight", "mtp_linear_proj.0.weight"}), "moe_num_experts"},
}

func under(prefix string, names []string) (out []string) {
	for _, n := range names {
		out = append(out, prefix+n)
	}
	return out
}

// TestPredictionAheadIsCopied: each class keeps the published tensors of multi-token prediction byte for byte, in
// checkpoints and final models of any dtype. PredictsAhead tells these tensors from trained ones, so a run can say that
// they are stale.
func TestPredictionAheadIsCopied(t *testing.T) {
	for modelType, of := range aheadOf {
		ahead := of.names
		t.Run(modelType, func(t *testing.T) {
			testkit.DrawnInRace(t, 4)
			keys := map[string]any{"model_type": modelType, "vocab_size": 37, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 2,
				"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 1,
				"first_k_dense_replace": 1, "bos_token_id": 1, "eos_token_id": 2, "layers_block_type": []any{"full_attention", "moe"},
				"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4, "index_n_heads": 1, "index_head_dim": 8}
			if of.experts != "" {
				keys[of.experts], keys["num_experts_per_tok"], keys["moe_k"], keys["moe_intermediate_size"] = 2, 1, 1, 4
			}
			c := testkit.Must(model.ParseConfig(testkit.Must(json.Marshal(keys))(t), "test"))(t)
			dir := fakeModel(t, c, "BF16", func(i int64) []byte { return counted(i)[2:] }, func(m map[string]*fakeTensor) {
				for _, name := range slices.Sorted(maps.Keys(m)) {
					if c.PredictsAhead(name) {
						t.Errorf("%s is trained and counts as multi-token prediction", name)
					}
				}
				for i, name := range ahead {
					dtype, bytes := "BF16", 2
					if strings.HasSuffix(name, "bias") {
						dtype, bytes = "F32", 4
					}
					m[name] = &fakeTensor{DType: dtype, Shape: []int64{3}, data: []byte(fmt.Sprintf("%012d", i))[:3*bytes]}
				}
			})
			layers := newLayers(c, true)
			names := testkit.Must(loadWhole(dir, layers, nil))(t)
			if want := slices.Sorted(slices.Values(ahead)); !slices.Equal(names, want) {
				t.Fatalf("untrained tensors %v, want %v", names, want)
			}
			for _, name := range names {
				if !c.PredictsAhead(name) {
					t.Errorf("%s does not count as multi-token prediction", name)
				}
			}
			dtypes, data := tensorsOf(t, dir)
			for _, d := range []DType{BF16, F32} {
				for what, out := range saved(t, c, layers, opened(t, dir, layers), d) {
					gotTypes, got := tensorsOf(t, out)
					for _, name := range ahead {
						if gotTypes[name] != dtypes[name] || string(got[name]) != string(data[name]) {
							t.Errorf("%s in %s: %s is %s %q, want %s %q", what, d, name, gotTypes[name], got[name], dtypes[name], data[name])
						}
					}
				}
			}
		})
	}
}
