package model

import "maps"

// Apertus norms queries and keys. Its MLP has no gate; its activation, xIELU, has two trained
// parameters per layer. Checkpoints also store the activation's constants as mlp.act_fn.beta and
// eps, which are not trained and stay unchanged. Source: transformers.ApertusConfig.
func init() {
	register(family{
		arch: "ApertusForCausalLM", modelType: "apertus",
		tensors: tensors{RoleAttnNorm: {"attention_layernorm.weight"}, RoleMLPNorm: {"feedforward_layernorm.weight"}},
		defaults: map[string]any{"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
			"num_attention_heads": 32, "hidden_act": xielu, "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "rope_theta": 12e6,
			"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3},
		keys: []string{"attention_bias", "mlp_bias", "qk_norm", "post_norm"},
		prepare: func(f *fields) {
			if !f.has("rope_parameters") && !f.has("rope_scaling") { // the class then takes no notice of rope_theta
				f.vals = maps.Clone(f.vals)
				maps.Copy(f.vals, map[string]any{"rope_theta": 12e6, "rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
					"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})
			}
		},
		options: func(c *Config, f *fields) {
			c.QKNorm, c.Ungated = true, true
			c.biases(f)
			for key, only := range map[string]bool{"mlp_bias": false, "qk_norm": true, "post_norm": false} {
				if f.bool(key, only) != only {
					f.fail(key, "%t is not supported: Transformers' class has %t", !only, only)
				}
			}
		},
		write: func(c *Config, m map[string]any) { m["attention_bias"] = c.QKVBias },
	})
}

// xielu is the value of hidden_act in config.json that means XIELU.
const xielu = "xielu"
