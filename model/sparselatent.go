package model

import "slices"

// GLM-5 has the attention (MLA with an indexer) and the experts of DeepSeek-V3.2. Multi-token prediction layers, which
// follow the last block, are not trained and are saved unchanged. Source: transformers.GlmMoeDsaConfig.
func init() {
	register(family{
		arch: "GlmMoeDsaForCausalLM", modelType: "glm_moe_dsa",
		defaults: map[string]any{"vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78,
			"num_attention_heads": 64, "max_position_embeddings": 202752, "rms_norm_eps": 1e-5,
			"q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
			"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
			"first_k_dense_replace": 3, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5,
			"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32},
		keys:    sparseLatentKeys,
		prepare: (*fields).sparseLatentHeads,
		options: func(c *Config, f *fields) { c.sparseLatent(f); c.MLA.Indexer.Interleaved = true },
		write:   (*Config).sparseLatentJSON,
	})
	register(family{
		arch: "DeepseekV32ForCausalLM", modelType: "deepseek_v32",
		defaults: map[string]any{"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
			"num_attention_heads": 128, "max_position_embeddings": 163840, "rms_norm_eps": 1e-6,
			"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
			"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
			"first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
			"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64},
		keys:    sparseLatentKeys,
		prepare: (*fields).sparseLatentHeads,
		options: (*Config).sparseLatent,
		write:   (*Config).sparseLatentJSON,
	})
}

// sparseLatentKeys are the keys of config.json that the families with an indexer have in common.
var sparseLatentKeys = slices.Concat(mlaKeys, sigmoidKeys, indexerKeys, []string{"mlp_layer_types", "rope_interleave", "ep_size",
	"pretraining_tp"})

// sparseLatentHeads sets head_dim: hidden_size need not be a multiple of the heads, whose sizes are MLA's.
func (f *fields) sparseLatentHeads() {
	if !f.has("head_dim") {
		f.setDefaults(map[string]any{"head_dim": f.vals["qk_rope_head_dim"]})
	}
}

// sparseLatent reads latent attention with an indexer, and experts. The classes in Transformers rotate neighbours in
// attention and ignore rope_interleave.
func (c *Config) sparseLatent(f *fields) {
	const key, kind = "layer_types", "indexed_attention"
	c.RopeInterleaved = true
	c.mlaFields(f)
	c.indexerFields(f)
	c.sigmoidExperts(f)
	if f.has("mlp_layer_types") {
		c.mlpTypes(f)
	}
	for b, t := range f.strs(key) {
		if t != kind {
			f.fail(key, "layer %d is %q; only %s is supported", b, t, kind)
		}
	}
}

func (c *Config) sparseLatentJSON(m map[string]any) {
	c.mlaJSON(m)
	c.indexerJSON(m)
	c.sigmoidJSON(m)
	c.mlpTypesJSON(m)
	delete(m, "layer_types")
}
