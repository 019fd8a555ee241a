package model

import "slices"

// Latent is attention whose queries, and keys with values, are made of a narrow vector each.
// A head's query and key have NopeDim elements that do not turn and RopeDim that do; the
// latter are the same in the keys of all heads. Source: arXiv:2405.04434.
type Latent struct {
	QRank, KVRank              int // widths of the two narrow vectors
	NopeDim, RopeDim, ValueDim int // elements of a head
}

// DeepSeek-V3 is planned and not trained: see family.untrained. Its layers that predict
// further tokens are not counted, as they are not in the published number of parameters.
// Source: arXiv:2412.19437; transformers.DeepseekV3Config.
func init() {
	register(family{
		arch: "DeepseekV3ForCausalLM", modelType: "deepseek_v3",
		untrained: "latent attention",
		planned:   "memory of attention is that of heads as wide as the mean of a key and a value",
		tensors: tensors{
			RoleQA:      {"self_attn.q_a_proj.weight"},
			RoleQANorm:  {"self_attn.q_a_layernorm.weight"},
			RoleQB:      {"self_attn.q_b_proj.weight"},
			RoleKVA:     {"self_attn.kv_a_proj_with_mqa.weight"},
			RoleKVANorm: {"self_attn.kv_a_layernorm.weight"},
			RoleKVB:     {"self_attn.kv_b_proj.weight"},
		},
		defaults: map[string]any{"max_position_embeddings": 4096, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
			"moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5},
		keys: slices.Concat([]string{"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "ep_size",
			"aux_loss_alpha", "seq_aux", "pretraining_tp", "rope_interleave", "qk_head_dim"}, sigmoidKeys),
		options: (*Config).deepSeek,
		write: func(c *Config, m map[string]any) {
			l := c.Latent
			delete(m, "head_dim")
			m["q_lora_rank"], m["kv_lora_rank"] = l.QRank, l.KVRank
			m["qk_nope_head_dim"], m["qk_rope_head_dim"], m["v_head_dim"] = l.NopeDim, l.RopeDim, l.ValueDim
			c.sigmoidJSON(m)
		},
	})
}

// deepSeek reads what is DeepSeek's own. HeadDim becomes the mean of the elements that a head
// has in its score products and in its values, so that the work of a pair is 12·HeadDim for
// each head, and q, k, v and the output together have the size that they have.
func (c *Config) deepSeek(f *fields) {
	l := &Latent{QRank: f.need("q_lora_rank", 1, maxHidden), KVRank: f.need("kv_lora_rank", 1, maxHidden),
		NopeDim: f.int("qk_nope_head_dim", 128, 1, maxHeadDim/4), RopeDim: f.int("qk_rope_head_dim", 64, 1, maxHeadDim/4),
		ValueDim: f.int("v_head_dim", 128, 1, maxHeadDim/4)}
	c.Latent, c.HeadDim = l, (l.NopeDim+l.RopeDim+l.ValueDim)/2
	if c.NumKVHeads != c.NumHeads {
		f.fail("num_key_value_heads", "%d: latent attention has as many as num_attention_heads, %d", c.NumKVHeads, c.NumHeads)
	}
	if c.HeadDim%2 != 0 {
		f.fail("v_head_dim", "%d with keys of %d elements: half the sum must be even", l.ValueDim, l.NopeDim+l.RopeDim)
	}
	c.sigmoidExperts(f)
}

// latent are the products of the block's queries, keys and values, and what norms the narrow
// vectors between them.
func (n blockNames) latent() []Param {
	c, l := n.c, n.c.Latent
	return []Param{
		matrix(RoleQA, c.HiddenSize, n.stored(RoleQA, l.QRank)), vector(RoleQANorm, n.stored(RoleQANorm, l.QRank)),
		matrix(RoleQB, l.QRank, n.stored(RoleQB, c.NumHeads*(l.NopeDim+l.RopeDim))),
		matrix(RoleKVA, c.HiddenSize, n.stored(RoleKVA, l.KVRank+l.RopeDim)), vector(RoleKVANorm, n.stored(RoleKVANorm, l.KVRank)),
		matrix(RoleKVB, l.KVRank, n.stored(RoleKVB, c.NumHeads*(l.NopeDim+l.ValueDim))),
	}
}
