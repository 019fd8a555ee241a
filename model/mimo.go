package model

import "slices"

// MiMo is Qwen2 with a module for multi-token prediction, which can be trained (PredictAhead). It reads the last
// block's output before the final norm, as the published vLLM model does. Sources: arXiv:2505.07608; the MiMo-7B
// checkpoints' config.json and tensor names; vLLM, mimo.py and mimo_mtp.py.
func init() {
	register(family{
		arch: "MiMoForCausalLM", modelType: "mimo",
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096},
		keys:     slices.Concat(qwenWindow, []string{"attention_bias", "num_nextn_predict_layers", "use_mrope"}),
		ahead: &aheadNames{module: "model.mtp_layers.0.", block: "model.mtp_layers.0.", hiddenFirst: true, plain: true,
			names: tensors{RoleAheadEmbedNorm: {"token_layernorm.weight"}, RoleAheadHiddenNorm: {"hidden_layernorm.weight"},
				RoleAheadProj: {"input_proj.weight"}, RoleAheadNorm: {"final_layernorm.weight"}}},
		options: func(c *Config, f *fields) {
			c.QKVBias = true
			if !f.bool("attention_bias", true) {
				f.fail("attention_bias", "false is not supported in %s, whose projections of queries, keys and values have biases", c.Arch)
			}
			if f.bool("use_mrope", false) {
				f.fail("use_mrope", "true is not supported")
			}
			if usedWindow(f) > 0 {
				f.fail("use_sliding_window", "true is not supported in %s", c.Arch)
			}
		},
		write: func(c *Config, m map[string]any) {
			c.qwenWindowJSON(m)
			m["attention_bias"], m["num_nextn_predict_layers"] = true, c.Ahead
		},
	})
}
