package model

import (
	"cmp"
	"math"
)

// MLA is multi-head latent attention. A token has two narrow latent vectors: queries are projected from one, keys and
// values from the other. A head's query and key have NopeDim elements without rotation, followed by RopeDim rotated
// ones. All heads share the rotated part of the key. Source: arXiv:2405.04434.
type MLA struct {
	QRank, KVRank              int // widths of the latent vectors, which are normed; QRank 0: queries come from the hidden state
	NopeDim, RopeDim, ValueDim int // elements of a head; ValueDim may be smaller or larger than the width of keys
	NormEps                    float32
	Bias                       bool     // the projections to the latent vectors have biases
	Indexer                    *Indexer // nil: a query attends to all keys before it
}

// mlaTensors are the tensor names of a block with MLA, after the block's prefix.
var mlaTensors = tensors{
	RoleQA:      {"self_attn.q_a_proj.weight"},
	RoleQABias:  {"self_attn.q_a_proj.bias"},
	RoleQANorm:  {"self_attn.q_a_layernorm.weight"},
	RoleQB:      {"self_attn.q_b_proj.weight"},
	RoleKVA:     {"self_attn.kv_a_proj_with_mqa.weight"},
	RoleKVABias: {"self_attn.kv_a_proj_with_mqa.bias"},
	RoleKVANorm: {"self_attn.kv_a_layernorm.weight"},
	RoleKVB:     {"self_attn.kv_b_proj.weight"},

	RoleIndexQ:         {"self_attn.indexer.wq_b.weight"},
	RoleIndexK:         {"self_attn.indexer.wk.weight"},
	RoleIndexKNorm:     {"self_attn.indexer.k_norm.weight"},
	RoleIndexKNormBias: {"self_attn.indexer.k_norm.bias"},
	RoleIndexWeights:   {"self_attn.indexer.weights_proj.weight"},
}

// tensorNames returns the tensor names of role r in a block with MLA; nil: the role is not
// particular to MLA.
func (l *MLA) tensorNames(r Role) []string {
	if r == RoleQB && l.QRank == 0 {
		return []string{"self_attn.q_proj.weight"}
	}
	return mlaTensors[r]
}

// mla returns the parameters of the projections to queries, keys and values through latent vectors, and of the norms of
// these vectors.
func (n blockNames) mla() []Param {
	c, l := n.c, n.c.MLA
	var p []Param
	narrow := func(weight, bias, norm Role, rows, normed int) {
		p = append(p, matrix(weight, c.HiddenSize, n.stored(weight, rows)))
		if l.Bias {
			p = append(p, vector(bias, n.stored(bias, rows)))
		}
		p = append(p, vector(norm, n.stored(norm, normed)))
	}
	if l.QRank > 0 {
		narrow(RoleQA, RoleQABias, RoleQANorm, l.QRank, l.QRank)
	}
	p = append(p, matrix(RoleQB, cmp.Or(l.QRank, c.HiddenSize), n.stored(RoleQB, c.NumHeads*c.HeadDim)))
	narrow(RoleKVA, RoleKVABias, RoleKVANorm, l.KVRank+l.RopeDim, l.KVRank)
	p = append(p, matrix(RoleKVB, l.KVRank, n.stored(RoleKVB, c.NumHeads*(l.NopeDim+l.ValueDim))))
	return append(p, n.indexer()...)
}

// mlaKeys are the keys of config.json that Config.mlaFields reads.
var mlaKeys = []string{"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "qk_head_dim",
	"attention_bias"}

// mlaFields reads the sizes and biases of MLA. HeadDim becomes the width of queries and keys. The key attention_bias
// gives biases to the projections to latent vectors and to the output projection. Queries that come from the hidden
// state have none. Source: transformers, modeling_deepseek_v2 and modeling_deepseek_v3.
func (c *Config) mlaFields(f *fields) {
	l := &MLA{QRank: f.int("q_lora_rank", 0, 1, maxHidden), KVRank: f.need("kv_lora_rank", 1, maxHidden),
		NopeDim: f.int("qk_nope_head_dim", 128, 1, maxHeadDim/2), RopeDim: f.int("qk_rope_head_dim", 64, 2, maxHeadDim/2),
		ValueDim: f.int("v_head_dim", 128, 1, maxHeadDim), NormEps: 1e-6}
	l.Bias = f.bool("attention_bias", false)
	c.MLA, c.HeadDim, c.OBias = l, l.NopeDim+l.RopeDim, l.Bias
	if c.NumKVHeads != c.NumHeads {
		f.fail("num_key_value_heads", "%d: latent attention has as many as num_attention_heads, %d", c.NumKVHeads, c.NumHeads)
	}
	if l.RopeDim%2 != 0 {
		f.fail("qk_rope_head_dim", "%d must be even: rotary embeddings turn pairs of elements", l.RopeDim)
	}
	if n := f.int("qk_head_dim", c.HeadDim, 1, maxHeadDim); n != c.HeadDim {
		f.fail("qk_head_dim", "%d is not qk_nope_head_dim and qk_rope_head_dim together, %d", n, c.HeadDim)
	}
}

// mlaJSON writes the keys that mlaFields reads into m. It removes head_dim, because Transformers computes the head's
// size itself.
func (c *Config) mlaJSON(m map[string]any) {
	l := c.MLA
	delete(m, "head_dim")
	m["q_lora_rank"], m["kv_lora_rank"] = optional(l.QRank), l.KVRank
	m["qk_nope_head_dim"], m["qk_rope_head_dim"], m["v_head_dim"] = l.NopeDim, l.RopeDim, l.ValueDim
	m["attention_bias"] = l.Bias
}

// turning returns the number of a head's elements that take part in the rotary embedding before
// partial_rotary_factor cuts them. That is the whole head or, with MLA, its RopeDim elements.
func (c *Config) turning() int {
	if c.MLA != nil {
		return c.MLA.RopeDim
	}
	return c.HeadDim
}

// RopeAt returns the index of a head's first rotated element: 0, or with MLA the end of the
// unrotated elements.
func (c *Config) RopeAt() int { return c.HeadDim - c.turning() }

// ValueDim returns how many elements a head has in values and in attention's output.
func (c *Config) ValueDim() int {
	if c.MLA != nil {
		return c.MLA.ValueDim
	}
	return c.HeadDim
}

// PackedHeadDim returns the width of a head in the packed rows that attention kernels read: the larger of the widths
// of keys and values. Zeros fill the narrower of the two.
func (c *Config) PackedHeadDim() int { return max(c.HeadDim, c.ValueDim(), c.GlobalHeadDim) }

// OutputCols returns the input width of a block's output projection of attention.
func (c *Config) OutputCols(block int) int {
	if c.MLA != nil {
		return c.NumHeads * c.MLA.ValueDim
	}
	return c.NumHeads * c.Heads(block).Dim
}

// PairFLOPs returns the forward FLOPs of one (query, key) pair in a block: for all heads the score and the weighted
// value. With values as wide as keys it is 4·heads·head_dim.
func (c *Config) PairFLOPs() float64 {
	return 2 * float64(c.NumHeads) * float64(c.HeadDim+c.ValueDim())
}

// ScoreScale returns the factor on attention's scores. With MLA, yarn's temperature (mscale_all_dim) scales the scores
// of all elements, not only of rotated ones. Source: transformers, modeling_deepseek_v3.
func (c *Config) ScoreScale() float64 {
	scale := cmp.Or(c.AttnScale, 1/math.Sqrt(float64(c.HeadDim)))
	if c.MLA != nil && c.Rope.Type == "yarn" && c.Rope.MScaleAllDim != 0 {
		m := yarnScale(c.Rope.Factor, c.Rope.MScaleAllDim)
		scale *= m * m
	}
	return scale
}
