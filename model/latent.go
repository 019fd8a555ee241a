package model

import (
	"cmp"
	"math"
)

// Latent is attention whose queries, and keys with values, are made of a narrow vector each.
// A head's query and key have NopeDim elements that do not turn and, behind them, RopeDim that
// do; the latter are the same in the keys of all heads. Source: arXiv:2405.04434.
type Latent struct {
	QRank, KVRank              int // widths of the narrow vectors, which are normed; QRank 0: queries are made of the hidden state
	NopeDim, RopeDim, ValueDim int // elements of a head; a value has no more than a key
	NormEps                    float32
}

// latentTensors are the names of such a block's tensors.
var latentTensors = tensors{
	RoleQA:      {"self_attn.q_a_proj.weight"},
	RoleQANorm:  {"self_attn.q_a_layernorm.weight"},
	RoleQB:      {"self_attn.q_b_proj.weight"},
	RoleKVA:     {"self_attn.kv_a_proj_with_mqa.weight"},
	RoleKVANorm: {"self_attn.kv_a_layernorm.weight"},
	RoleKVB:     {"self_attn.kv_b_proj.weight"},
}

// tensorNames are the names of the tensors of role r, or nil where latent attention has none of its own.
func (l *Latent) tensorNames(r Role) []string {
	if r == RoleQB && l.QRank == 0 {
		return []string{"self_attn.q_proj.weight"}
	}
	return latentTensors[r]
}

// latent are the products of the block's queries, keys and values, and what norms the narrow
// vectors between them.
func (n blockNames) latent() []Param {
	c, l := n.c, n.c.Latent
	var p []Param
	if l.QRank > 0 {
		p = append(p, matrix(RoleQA, c.HiddenSize, n.stored(RoleQA, l.QRank)), vector(RoleQANorm, n.stored(RoleQANorm, l.QRank)))
	}
	return append(p,
		matrix(RoleQB, cmp.Or(l.QRank, c.HiddenSize), n.stored(RoleQB, c.NumHeads*c.HeadDim)),
		matrix(RoleKVA, c.HiddenSize, n.stored(RoleKVA, l.KVRank+l.RopeDim)), vector(RoleKVANorm, n.stored(RoleKVANorm, l.KVRank)),
		matrix(RoleKVB, l.KVRank, n.stored(RoleKVB, c.NumHeads*(l.NopeDim+l.ValueDim))))
}

// latentKeys are the keys that latentFields reads.
var latentKeys = []string{"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "qk_head_dim"}

// latentFields reads the sizes of latent attention. HeadDim becomes that of queries and keys.
func (c *Config) latentFields(f *fields) {
	l := &Latent{QRank: f.int("q_lora_rank", 0, 1, maxHidden), KVRank: f.need("kv_lora_rank", 1, maxHidden),
		NopeDim: f.int("qk_nope_head_dim", 128, 1, maxHeadDim/2), RopeDim: f.int("qk_rope_head_dim", 64, 2, maxHeadDim/2),
		ValueDim: f.int("v_head_dim", 128, 1, maxHeadDim), NormEps: 1e-6}
	c.Latent, c.HeadDim = l, l.NopeDim+l.RopeDim
	if c.NumKVHeads != c.NumHeads {
		f.fail("num_key_value_heads", "%d: latent attention has as many as num_attention_heads, %d", c.NumKVHeads, c.NumHeads)
	}
	if l.RopeDim%2 != 0 {
		f.fail("qk_rope_head_dim", "%d must be even: rotary embeddings turn pairs of elements", l.RopeDim)
	}
	if l.ValueDim > c.HeadDim {
		f.fail("v_head_dim", "%d: values wider than keys, of %d elements, are not supported%s", l.ValueDim, c.HeadDim, addOne)
	}
	if n := f.int("qk_head_dim", c.HeadDim, 1, maxHeadDim); n != c.HeadDim {
		f.fail("qk_head_dim", "%d is not qk_nope_head_dim and qk_rope_head_dim together, %d", n, c.HeadDim)
	}
}

// latentJSON is the other direction. What has the size of a head in config.json Transformers
// computes.
func (c *Config) latentJSON(m map[string]any) {
	l := c.Latent
	delete(m, "head_dim")
	m["q_lora_rank"], m["kv_lora_rank"] = optional(l.QRank), l.KVRank
	m["qk_nope_head_dim"], m["qk_rope_head_dim"], m["v_head_dim"] = l.NopeDim, l.RopeDim, l.ValueDim
}

// turning is how many elements of a head a rotary embedding turns that turns all it can, and
// RopeAt where they begin in a head.
func (c *Config) turning() int {
	if c.Latent != nil {
		return c.Latent.RopeDim
	}
	return c.HeadDim
}

// RopeAt is the first element of a head that a rotary embedding turns.
func (c *Config) RopeAt() int { return c.HeadDim - c.turning() }

// ValueDim is how many elements a head has in values, and in attention's output.
func (c *Config) ValueDim() int {
	if c.Latent != nil {
		return c.Latent.ValueDim
	}
	return c.HeadDim
}

// OutputCols is how many elements of a token attention's output projection takes.
func (c *Config) OutputCols() int { return c.NumHeads * c.ValueDim() }

// PairFLOPs is the forward's work on one (query, key) pair of a block: in all heads its score, over the
// elements of a key, and its value. Where values are as wide as keys it is 4·heads·head_dim.
func (c *Config) PairFLOPs() float64 {
	return 2 * float64(c.NumHeads) * float64(c.HeadDim+c.ValueDim())
}

// ScoreScale is what attention's scores are multiplied by. In latent attention yarn's temperature
// scales the scores of all elements, not only of those that turn: mscale_all_dim. Source:
// transformers, modeling_deepseek_v3.
func (c *Config) ScoreScale() float64 {
	scale := cmp.Or(c.AttnScale, 1/math.Sqrt(float64(c.HeadDim)))
	if c.Latent != nil && c.Rope.Type == "yarn" && c.Rope.MScaleAllDim != 0 {
		m := yarnScale(c.Rope.Factor, c.Rope.MScaleAllDim)
		scale *= m * m
	}
	return scale
}
