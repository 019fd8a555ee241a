package model

import (
	"cmp"
	"slices"
	"strings"
)

// family is what the program knows of one architecture: how its config.json
// reads and what its tensors are called. docs/adding-a-family.md shows how one
// is written.
type family struct {
	arch, modelType string
	// nested says where the language model's keys are in the config.json of a larger model; nil:
	// they are at the top.
	nested *nested
	// prefixes are how tensors' names can begin, the usual way first; none: "model." and
	// "lm_head.".
	prefixes []prefix
	// tensors are the names that differ from Llama's (or, in a block of four norms, from Gemma's).
	tensors tensors
	// blocks is how the names of the blocks' tensors begin, after the prefix; "": "layers.".
	blocks string
	// places are the roles whose tensors lie in others, or transposed.
	places map[Role]placed
	// eitherWay says that the matrices of experts may also be stored the other way round, transposed
	// or not. Their shapes tell.
	eitherWay bool
	// defaults are the values of keys that config.json leaves out. (A null does not leave
	// its key out: it says that there is no value.)
	defaults map[string]any
	// ropeTypes are other names of rotary embeddings.
	ropeTypes map[string]string
	// names are what its config.json calls the keys that all families share, where that is not
	// Llama's name. Defaults have Llama's.
	names map[string]string
	// dropout says that published files ask for dropout: the model is trained without, and a note
	// says so. In other families it is refused.
	dropout bool
	// localTheta is the default base for blocks with a sliding window; 0: all blocks have
	// the same rotary embedding.
	localTheta float64
	mscales    bool // short_mscale and long_mscale of longrope count
	partial    bool // partial_rotary_factor counts
	ropeAlpha  bool // alpha of a dynamic rotary embedding counts
	mxfp4      bool // experts may be stored in MXFP4
	// keys are those that options reads, which an inline config may have.
	keys []string
	// prepare sets keys that are missing and whose values follow from others. It is called before
	// anything is read.
	prepare func(f *fields)
	// options sets what the architecture's mathematics is. It is called when the sizes
	// have been read and the rotary embeddings have not.
	options func(c *Config, f *fields)
	// write adds the family's keys to the config.json of an inline config.
	write func(c *Config, m map[string]any)
}

// prefix is how the names of a model's tensors begin.
type prefix struct{ model, head string }

// tensors are the names of tensors by role: of a block's after "model.layers.N.", of others after
// "model.". A fused role has several, in the order of their rows, or one that holds all its rows.
type tensors map[Role][]string

// expertNumber stands for the expert's number in a name.
const expertNumber = "{expert}"

// llamaTensors are the names that most families share.
var llamaTensors = tensors{
	RoleEmbed:        {"embed_tokens.weight"},
	RolePositions:    {"embed_positions.weight"},
	RoleAttnNorm:     {"input_layernorm.weight"},
	RoleAttnNormBias: {"input_layernorm.bias"},
	RoleQKV:          {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
	RoleQKVBias:      {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"},
	RoleQNorm:        {"self_attn.q_norm.weight"},
	RoleKNorm:        {"self_attn.k_norm.weight"},
	RoleO:            {"self_attn.o_proj.weight"},
	RoleOBias:        {"self_attn.o_proj.bias"},
	RoleMLPNorm:      {"post_attention_layernorm.weight"},
	RoleMLPNormBias:  {"post_attention_layernorm.bias"},
	RoleUp:           {"mlp.up_proj.weight"},
	RoleUpBias:       {"mlp.up_proj.bias"},
	RoleGateUp:       {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
	RoleGateUpBias:   {"mlp.gate_proj.bias", "mlp.up_proj.bias"},
	RoleDown:         {"mlp.down_proj.weight"},
	RoleDownBias:     {"mlp.down_proj.bias"},
	RoleRouter:       {"mlp.gate.weight"},
	RoleExpertGateUp: {"mlp.experts." + expertNumber + ".gate_proj.weight", "mlp.experts." + expertNumber + ".up_proj.weight"},
	RoleExpertDown:   {"mlp.experts." + expertNumber + ".down_proj.weight"},
	RoleChoiceBias:   {"mlp.gate.e_score_correction_bias"},
	RoleSharedGate:   {"mlp.shared_expert_gate.weight"},
	RoleSharedGateUp: {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"},
	RoleSharedDown:   {"mlp.shared_experts.down_proj.weight"},

	RoleFinalNorm:        {"norm.weight"},
	RoleFinalNormBias:    {"norm.bias"},
	RoleSinks:            {"self_attn.sinks"},
	RoleRouterBias:       {"mlp.gate.bias"},
	RoleExpertGateUpBias: {"mlp.experts." + expertNumber + ".gate_proj.bias", "mlp.experts." + expertNumber + ".up_proj.bias"},
	RoleExpertDownBias:   {"mlp.experts." + expertNumber + ".down_proj.bias"},
	RoleSharedGateUpBias: {"mlp.shared_experts.gate_proj.bias", "mlp.shared_experts.up_proj.bias"},
	RoleSharedDownBias:   {"mlp.shared_experts.down_proj.bias"},
}

// outputNormTensors are the names of a block's norms where outputs are normed.
var outputNormTensors = tensors{
	RolePostAttnNorm: {"post_attention_layernorm.weight"},
	RoleMLPNorm:      {"pre_feedforward_layernorm.weight"},
	RolePostMLPNorm:  {"post_feedforward_layernorm.weight"},
}

var usualPrefix = prefix{"model.", "lm_head."}

// families are all known families. findFamily looks for one by its architecture.
var families []*family

// register makes a family known.
func register(f family) {
	families = append(families, &f)
	slices.SortFunc(families, func(a, b *family) int { return cmp.Compare(a.arch, b.arch) })
}

// tensorNames are the names of the tensors of role r.
func (c *Config) tensorNames(r Role) []string {
	if c.family != nil && c.family.tensors[r] != nil {
		return c.family.tensors[r]
	}
	if c.NormsOutputs() && outputNormTensors[r] != nil {
		return outputNormTensors[r]
	}
	if c.MLA != nil && c.MLA.tensorNames(r) != nil {
		return c.MLA.tensorNames(r)
	}
	if c.OutputGate && outputGateTensors[r] != nil {
		return outputGateTensors[r]
	}
	if gatedDeltaTensors[r] != nil {
		return gatedDeltaTensors[r]
	}
	return llamaTensors[r]
}

// familyOf is the model's family. For a Config that was made by hand it is that of its
// ModelType, or nil.
func (c *Config) familyOf() *family {
	if c.family != nil {
		return c.family
	}
	for _, a := range families {
		if a.modelType == c.ModelType {
			return a
		}
	}
	return nil
}

// names is how the model's tensors' names begin.
func (c *Config) names() prefix {
	switch {
	case c.prefix != prefix{}:
		return c.prefix
	case c.family != nil && len(c.family.prefixes) > 0:
		return c.family.prefixes[0]
	}
	return usualPrefix
}

// Prefixes are how the names of the tensors begin: those of the model, and those of the head.
func (c *Config) Prefixes() (model, head string) { return c.names().model, c.names().head }

// addOne ends the errors about models of a family that mt does not have.
const addOne = "; docs/adding-a-family.md in mt's sources shows how one more is added"

// findFamily finds the family by model_type, as Transformers does, and where there is none by architectures. A class that is no
// family's, such as a base class, counts as model_type says. A class of another family than model_type's is refused.
func findFamily(f *fields) *family {
	archs, modelType := f.strs("architectures"), f.str("model_type", "")
	if f.err != nil {
		return nil
	}
	var known []string
	for _, a := range families {
		known = append(known, a.arch)
	}
	other := func(arch string) bool { return slices.Contains(known, arch) }
	for _, a := range families {
		byArch := len(archs) == 1 && archs[0] == a.arch
		byType := modelType == a.modelType
		if byArch && modelType == "" || byType && (slices.Contains(archs, a.arch) || !slices.ContainsFunc(archs, other)) {
			return a
		}
	}
	what, key := cut(strings.Join(archs, ", ")), "architectures"
	if len(archs) == 0 {
		what, key = modelType, "model_type"
	}
	switch {
	case what == "":
		f.fail(key, "missing, and no architectures either; known: %s%s", strings.Join(known, ", "), addOne)
	case len(archs) == 1 && slices.Contains(known, what):
		f.fail(key, "%s does not go with model_type %q", what, modelType)
	default:
		f.fail(key, "%s is not supported; known: %s%s", what, strings.Join(known, ", "), addOne)
	}
	return nil
}
