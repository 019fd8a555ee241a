package model

import "fmt"

// Layers is the parameter table: the embedding, the decoder blocks, the head.
func (c *Config) Layers() []Layer {
	out := []Layer{{Kind: Embedding, Params: []Param{c.EmbedParam()}}}
	for b := range c.NumLayers {
		out = append(out, Layer{Index: 1 + b, Kind: Block, Block: b, Params: c.blockParams(b)})
	}
	head := Layer{Index: 1 + c.NumLayers, Kind: Head, Tied: c.TieEmbeddings}
	head.Params = []Param{vector(RoleFinalNorm, parts("model.norm.weight", c.HiddenSize))}
	if !c.TieEmbeddings {
		head.Params = append(head.Params, matrix(RoleLMHead, c.HiddenSize, parts("lm_head.weight", c.VocabSize)))
	}
	return append(out, head)
}

// Layouts lays out every layer (see NewLayout).
func (c *Config) Layouts(bf16 bool) []Layout {
	var out []Layout
	for _, l := range c.Layers() {
		out = append(out, NewLayout(l, bf16, c.EmbedParam()))
	}
	return out
}

// EmbedParam is the embedding's table (VocabSize, HiddenSize).
func (c *Config) EmbedParam() Param {
	return matrix(RoleEmbed, c.HiddenSize, parts("model.embed_tokens.weight", c.VocabSize))
}

func (c *Config) blockParams(b int) []Param {
	h, f, d := c.HiddenSize, c.IntermediateSize, c.HeadDim
	q, kv := c.NumHeads*d, c.NumKVHeads*d
	attn, mlp := fmt.Sprintf("model.layers.%d.self_attn.", b), fmt.Sprintf("model.layers.%d.mlp.", b)
	norm := func(name string) []Part { return parts(fmt.Sprintf("model.layers.%d.%s.weight", b, name), h) }
	qkv := func(what string) []Part {
		return parts(attn+"q_proj."+what, q, attn+"k_proj."+what, kv, attn+"v_proj."+what, kv)
	}
	gateUp := func(what string) []Part { return parts(mlp+"gate_proj."+what, f, mlp+"up_proj."+what, f) }

	p := []Param{vector(RoleAttnNorm, norm("input_layernorm")), matrix(RoleQKV, h, qkv("weight"))}
	if c.QKVBias {
		p = append(p, vector(RoleQKVBias, qkv("bias")))
	}
	if c.QKNorm {
		p = append(p, vector(RoleQNorm, parts(attn+"q_norm.weight", d)), vector(RoleKNorm, parts(attn+"k_norm.weight", d)))
	}
	p = append(p, matrix(RoleO, q, parts(attn+"o_proj.weight", h)))
	if c.OBias {
		p = append(p, vector(RoleOBias, parts(attn+"o_proj.bias", h)))
	}
	p = append(p, vector(RoleMLPNorm, norm("post_attention_layernorm")), matrix(RoleGateUp, h, gateUp("weight")))
	if c.MLPBias {
		p = append(p, vector(RoleGateUpBias, gateUp("bias")))
	}
	p = append(p, matrix(RoleDown, f, parts(mlp+"down_proj.weight", h)))
	if c.MLPBias {
		p = append(p, vector(RoleDownBias, parts(mlp+"down_proj.bias", h)))
	}
	return p
}

// parts stacks tensors, given as name, rows, name, rows, ….
func parts(nameRows ...any) []Part {
	var out []Part
	row := 0
	for i := 0; i < len(nameRows); i += 2 {
		rows := nameRows[i+1].(int)
		out = append(out, Part{Name: nameRows[i].(string), Row: row, Rows: rows})
		row += rows
	}
	return out
}

func matrix(r Role, cols int, ps []Part) Param {
	last := ps[len(ps)-1]
	return Param{Role: r, Rows: last.Row + last.Rows, Cols: cols, Dims: 2, Parts: ps}
}

func vector(r Role, ps []Part) Param {
	p := matrix(r, 1, ps)
	p.Dims = 1
	return p
}

// Params is the number of parameters; a tied tensor counts once.
func (c *Config) Params() int64 {
	var n int64
	for _, l := range c.Layers() {
		n += l.Elems()
	}
	return n
}

// MatrixParams is the number of parameters in matrix products: the lm_head
// counts, tied or not, the embedding's gather does not.
func (c *Config) MatrixParams() int64 {
	n := int64(c.VocabSize) * int64(c.HiddenSize)
	for _, p := range c.blockParams(0) {
		if p.Dims >= 2 {
			n += int64(c.NumLayers) * p.Elems()
		}
	}
	return n
}

// FLOPsPerToken is the work of training on one token, forward and backward,
// when meanAttended positions are attended on average ((T+1)/2 for a causal mask
// over T): 6·MatrixParams + 12·layers·heads·head_dim·meanAttended. Recomputation
// is not in it.
func (c *Config) FLOPsPerToken(meanAttended float64) float64 {
	attention := float64(c.NumLayers) * float64(c.NumHeads) * float64(c.HeadDim) * meanAttended
	return 6*float64(c.MatrixParams()) + 12*attention
}
