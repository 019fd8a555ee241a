package model

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// family describes one architecture: how to read its config.json, and the names of its tensors.
// docs/adding-a-family.md shows how to write one.
type family struct {
	arch, modelType string
	// otherTypes are values of model_type in published files for modelType's model, unknown to Transformers.
	otherTypes []string
	// nested says under which key the config.json of a larger model, such as one with a vision
	// tower, has the language model's keys; nil: they are at the top.
	nested *nested
	// prefixes are the possible beginnings of tensor names, the usual one first; nil: "model." and "lm_head.".
	prefixes []prefix
	// tensors are the tensor names that differ from the usual names. The usual names are Llama's
	// or, in blocks that norm outputs too, Gemma's.
	tensors tensors
	// others are names that some directories have instead of those in tensors. The names of a directory's tensors tell.
	others tensors
	// blocks is the beginning of block tensor names, after the prefix; "": "layers.".
	blocks string
	// places lists the roles whose tensors a checkpoint stores as part of a larger tensor, or
	// transposed, and says how.
	places map[Role]placed
	// joined is for families whose checkpoints may have one tensor for all experts of a block. It
	// says how that tensor holds the matrices of a role. It applies if the directory has the
	// tensor's name; otherwise each expert has tensors of its own.
	joined map[Role]placed
	// eitherWay says that some checkpoints store expert matrices transposed and others do not. The
	// tensors' shapes decide.
	eitherWay bool
	// defaults are the values of missing keys. A null key is not missing: it says that there is no value.
	defaults map[string]any
	// ropeTypes maps this family's own names of rope types to the usual names.
	ropeTypes map[string]string
	// names maps Llama's names of keys to this family's names, where they differ. The field defaults uses Llama's names.
	names map[string]string
	// eitherName says that a file may have Llama's name in place of the family's.
	eitherName bool
	// dropout says that published files ask for dropout. The model is trained without dropout, and a note says so.
	// Other families refuse dropout.
	dropout bool
	// localTheta is the default RoPE base (theta) of blocks with a sliding window; 0: all blocks have the same rotary
	// embedding.
	localTheta float64
	mscales    bool // short_mscale and long_mscale of longrope are supported
	partial    bool // partial_rotary_factor is supported
	ropeAlpha  bool // alpha of rope type dynamic is supported
	mxfp4      bool // experts may be stored in MXFP4
	// keys are the keys of config.json that options reads. An inline config of this family may have
	// them too.
	keys []string
	// prepare sets missing keys whose values follow from others. It runs before anything is read.
	prepare func(f *fields)
	// options sets the architecture's mathematics. It runs after the sizes and before the rotary embeddings are read.
	options func(c *Config, f *fields)
	// ahead has the names of the module for multi-token prediction; nil: mt cannot train it.
	ahead *aheadNames
	// write adds the family's keys to the config.json of an inline config.
	write func(c *Config, m map[string]any)
}

// prefix has the text that begins the model's tensor names (embedding, blocks, final norm), and the
// text that begins the head's.
type prefix struct{ model, head string }

// tensors maps roles to tensor names. A block's names follow "model.layers.N.", all others follow
// "model.". A fused role, such as q, k and v in one matrix, has several names in the order of the
// rows, or a single name for all rows.
type tensors map[Role][]string

// and returns the union of ts and more. If both have a role, the result has the names from more.
func (ts tensors) and(more tensors) tensors {
	out := maps.Clone(ts)
	maps.Copy(out, more)
	return out
}

// expertNumber is a placeholder in the tensor names of experts. ofExpert replaces it by the
// expert's number.
const expertNumber = "{expert}"

// llamaTensors are the tensor names that most families share.
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
	RoleLayerScalar:  {"layer_scalar"},

	RolePerLayerGate:     {"per_layer_input_gate.weight"},
	RolePerLayerOut:      {"per_layer_projection.weight"},
	RolePerLayerPostNorm: {"post_per_layer_input_norm.weight"},
	RolePerLayerTable:    {"embed_tokens_per_layer.weight"},
	RolePerLayerProj:     {"per_layer_model_projection.weight"},
	RolePerLayerNorm:     {"per_layer_projection_norm.weight"},

	RoleRouter:         {"mlp.gate.weight"},
	RoleExpertGateUp:   {"mlp.experts." + expertNumber + ".gate_proj.weight", "mlp.experts." + expertNumber + ".up_proj.weight"},
	RoleExpertDown:     {"mlp.experts." + expertNumber + ".down_proj.weight"},
	RoleChoiceBias:     {"mlp.gate.e_score_correction_bias"},
	RoleRouterNorm:     {"router.scale"},
	RoleExpertScales:   {"router.per_expert_scale"},
	RoleExpertNorm:     {"pre_feedforward_layernorm_2.weight"},
	RolePostDenseNorm:  {"post_feedforward_layernorm_1.weight"},
	RolePostExpertNorm: {"post_feedforward_layernorm_2.weight"},
	RoleSharedGate:     {"mlp.shared_expert_gate.weight"},
	RoleSharedGateUp:   {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"},
	RoleSharedDown:     {"mlp.shared_experts.down_proj.weight"},

	RoleFinalNorm:        {"norm.weight"},
	RoleFinalNormBias:    {"norm.bias"},
	RoleSinks:            {"self_attn.sinks"},
	RoleXIELU:            {"mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n"},
	RoleRouterBias:       {"mlp.gate.bias"},
	RoleExpertGateUpBias: {"mlp.experts." + expertNumber + ".gate_proj.bias", "mlp.experts." + expertNumber + ".up_proj.bias"},
	RoleExpertDownBias:   {"mlp.experts." + expertNumber + ".down_proj.bias"},
	RoleSharedGateUpBias: {"mlp.shared_experts.gate_proj.bias", "mlp.shared_experts.up_proj.bias"},
	RoleSharedDownBias:   {"mlp.shared_experts.down_proj.bias"},
}

// ungatedTensors are the usual tensor names for experts whose MLP has no gate: one up projection
// and its bias.
var ungatedTensors = tensors{
	RoleExpertGateUp:     {"mlp.experts." + expertNumber + ".up_proj.weight"},
	RoleExpertGateUpBias: {"mlp.experts." + expertNumber + ".up_proj.bias"},
	RoleSharedGateUp:     {"mlp.shared_experts.up_proj.weight"},
	RoleSharedGateUpBias: {"mlp.shared_experts.up_proj.bias"},
}

// outputNormTensors are the usual names of a block's norms in models that norm the outputs of
// attention and MLP.
var outputNormTensors = tensors{
	RolePostAttnNorm: {"post_attention_layernorm.weight"},
	RoleMLPNorm:      {"pre_feedforward_layernorm.weight"},
	RolePostMLPNorm:  {"post_feedforward_layernorm.weight"},
}

var usualPrefix = prefix{"model.", "lm_head."}

// families are all known families, sorted by architecture.
var families []*family

// register adds a family to families.
func register(f family) {
	families = append(families, &f)
	slices.SortFunc(families, func(a, b *family) int { return cmp.Compare(a.arch, b.arch) })
}

// tensorNames returns the names of the tensors of role r, in the order of their rows, without the model's and the
// block's prefix.
func (c *Config) tensorNames(r Role) []string {
	if c.othersNamed && c.family.others[r] != nil {
		return c.family.others[r]
	}
	if c.family != nil && c.family.tensors[r] != nil {
		return c.family.tensors[r]
	}
	if c.NormsOutputs() && outputNormTensors[r] != nil {
		return outputNormTensors[r]
	}
	if c.Ungated && ungatedTensors[r] != nil {
		return ungatedTensors[r]
	}
	if c.MLA != nil && c.MLA.tensorNames(r) != nil {
		return c.MLA.tensorNames(r)
	}
	if c.OutputGate && outputGateTensors[r] != nil {
		return outputGateTensors[r]
	}
	if of := c.Recurrence(); of != nil && of.tensorNames(r) != nil {
		return of.tensorNames(r)
	}
	return llamaTensors[r]
}

// familyOf returns the model's family. A Config that was not read, as in tests, has the family of
// its ModelType, or none: nil.
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

// names returns the text that begins the tensor names of the model and of its head. If the model
// was read from a directory it is the text found there, otherwise the family's usual one.
func (c *Config) names() prefix {
	switch {
	case c.prefix != prefix{}:
		return c.prefix
	case c.family != nil && len(c.family.prefixes) > 0:
		return c.family.prefixes[0]
	}
	return usualPrefix
}

// Prefixes returns the beginnings of the tensor names of the model and of the head.
func (c *Config) Prefixes() (model, head string) { return c.names().model, c.names().head }

// PredictsAhead reports whether a tensor belongs to multi-token prediction that is not trained: to a module whose name
// begins with mtp, as in mtp.fc or mtp_block.0, or to a block after the last one.
func (c *Config) PredictsAhead(name string) bool {
	if slices.ContainsFunc(strings.Split(name, "."), func(module string) bool { return strings.HasPrefix(module, "mtp") }) {
		return true
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(blockNames{c, 0}.prefix(), "0."))
	number, _, _ := strings.Cut(rest, ".")
	block, err := strconv.Atoi(number)
	return ok && err == nil && block >= c.Blocks()
}

// addOne is the end of error messages about models of an unknown family.
const addOne = "; docs/adding-a-family.md in mt's sources shows how one more is added"

// findFamily finds the family by model_type, as Transformers does, or without model_type by architectures. If
// architectures names an unknown class, such as a base class, model_type alone decides. If it names the class of
// another known family, that is an error.
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
		byType := modelType == a.modelType || slices.Contains(a.otherTypes, modelType)
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

// Defaults returns the values that the class of a model type has for keys that a config.json lacks, by Llama's names of
// keys.
func Defaults(modelType string) map[string]any {
	for _, a := range families {
		if a.modelType == modelType || slices.Contains(a.otherTypes, modelType) {
			return a.defaults
		}
	}
	return nil
}
