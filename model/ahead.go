package model

import "fmt"

// This file has the parameters of multi-token prediction, a module behind the last block that predicts the token after
// the next (Config.Ahead). It is trained if Config.PredictAhead was called; otherwise its tensors are saved unchanged
// (PredictsAhead). Its block has the number NumLayers.

// aheadNames says how a family's directories name the module's tensors.
type aheadNames struct {
	module string // the beginning of all names but the block's; "": the block's beginning
	block  string // the beginning of the block's names; "": as of any other block
	names  tensors
	// repeated are tensors of the block with which directories may repeat the embedding and the head.
	repeated tensors
	// hiddenFirst: the projection's first columns are those of the hidden state, not of the embedding.
	hiddenFirst bool
	// plain: the hidden state is the last block's output, not the final norm's.
	plain bool
}

// aheadBlock are the names of DeepSeek-V3, which keeps the module as the block after the last one.
var aheadBlock = &aheadNames{names: tensors{RoleAheadEmbedNorm: {"enorm.weight"}, RoleAheadHiddenNorm: {"hnorm.weight"}, RoleAheadProj: {"eh_proj.weight"},
	RoleAheadNorm: {"shared_head.norm.weight"}}, repeated: tensors{RoleEmbed: {"embed_tokens.weight"}, RoleLMHead: {"shared_head.head.weight"}}}

// aheadModule are the names of Qwen3-Next, which keeps the module beside the model.
var aheadModule = &aheadNames{module: "mtp.", block: "mtp.layers.0.", names: tensors{RoleAheadEmbedNorm: {"pre_fc_norm_embedding.weight"},
	RoleAheadHiddenNorm: {"pre_fc_norm_hidden.weight"}, RoleAheadProj: {"fc.weight"}, RoleAheadNorm: {"norm.weight"}}}

// PredictAhead makes the module for multi-token prediction part of the model. It returns an error if mt cannot train
// the architecture's module.
func (c *Config) PredictAhead() error {
	f := c.familyOf()
	switch {
	case f == nil || f.ahead == nil:
		return fmt.Errorf("the multi-token prediction of %s is not supported", c.Arch)
	case c.OutputRouterLogits:
		return fmt.Errorf("output_router_logits: the balancing loss is not supported beside multi-token prediction")
	case c.aheadOwn:
		return fmt.Errorf("mtp_use_dedicated_embeddings: a second embedding for multi-token prediction is not supported: set train_mtp to false")
	}
	c.Ahead = 1
	if of := 0; f.ahead.module != "" && c.HasExperts(of) != c.HasExperts(c.NumLayers) { // a module beside the model counts from 0
		c.Ahead = 0
		return fmt.Errorf("decoder_sparse_step or mlp_only_layers: the module for multi-token prediction is block 0 in some programs and block %d in others, and only one of these has experts: set train_mtp to false", c.NumLayers)
	}
	return nil
}

// Blocks returns the number of trained decoder blocks, the one for multi-token prediction included.
func (c *Config) Blocks() int { return c.NumLayers + c.Ahead }

// Streams returns how many hidden states of a token the head turns into logits: one or, with multi-token prediction,
// two.
func (c *Config) Streams() int { return 1 + c.Ahead }

// AheadColumns returns the first columns of the embedding and of the hidden state in the projection of the module for
// multi-token prediction.
func (c *Config) AheadColumns() (embedding, hidden int) {
	if c.familyOf().ahead.hiddenFirst {
		return c.HiddenSize, 0
	}
	return 0, c.HiddenSize
}

// AheadPlain reports whether that module reads the last block's output. Otherwise it reads the final norm's.
func (c *Config) AheadPlain() bool { return c.familyOf().ahead.plain }

// aheadNamed returns the names of the module's tensors of role r.
func (c *Config) aheadNamed(r Role) []string {
	a := c.familyOf().ahead
	begin := a.module
	if begin == "" {
		begin = blockNames{c, c.NumLayers}.prefix()
	}
	return []string{begin + a.names[r][0]}
}

// aheadInput returns the layer that makes the module's input of the last block's output and the next token's embedding.
// It has the model's final norm, whose output the head reads too.
func (c *Config) aheadInput() Layer {
	h := c.HiddenSize
	return Layer{Kind: AheadInput, Block: c.NumLayers, Params: []Param{vector(RoleFinalNorm, stack(c.outer(RoleFinalNorm), h)),
		vector(RoleAheadEmbedNorm, stack(c.aheadNamed(RoleAheadEmbedNorm), h)), vector(RoleAheadHiddenNorm, stack(c.aheadNamed(RoleAheadHiddenNorm), h)),
		matrix(RoleAheadProj, 2*h, stack(c.aheadNamed(RoleAheadProj), h))}}
}

// aheadNorm returns the layer with the norm of the module's output.
func (c *Config) aheadNorm() Layer {
	return Layer{Kind: AheadNorm, Block: c.NumLayers, Params: []Param{vector(RoleAheadNorm, stack(c.aheadNamed(RoleAheadNorm), c.HiddenSize))}}
}

// repeated sets Repeated of p, the table of the embedding or of the head. The tensors are in the module's block.
func (c *Config) repeated(p *Param) {
	if c.Ahead == 0 {
		return
	}
	for _, name := range c.familyOf().ahead.repeated[p.Role] {
		p.Repeated = append(p.Repeated, blockNames{c, c.NumLayers}.prefix()+name)
	}
	if p.Role == RoleEmbed && c.TieEmbeddings {
		head := Param{Role: RoleLMHead}
		c.repeated(&head)
		p.Repeated = append(p.Repeated, head.Repeated...)
	}
}
