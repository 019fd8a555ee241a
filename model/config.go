package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Activation is the function of a gated MLP's gate or, without a gate, of the MLP.
type Activation uint8

// The activations, by the names of config.json's hidden_act.
const (
	SiLU     Activation = iota // "silu", "swish"
	GELUTanh                   // "gelu_pytorch_tanh", "gelu_new"
	GELU                       // "gelu"
	ReLU                       // "relu"
)

// ClampedSwiGLU is a gate and an up that are cut off: g·σ(Alpha·g)·(u+1) with g = min(gate, Limit) and u = up, but
// within ±Limit. Source: the gpt-oss model card, arXiv:2508.10925.
type ClampedSwiGLU struct{ Alpha, Limit float64 }

// Config is a decoder-only architecture in the terms of config.json. From NormOffset on, the
// zero value of a field is what Llama has.
type Config struct {
	Arch             string // "LlamaForCausalLM"
	ModelType        string // "llama", "qwen2", …
	VocabSize        int
	HiddenSize       int
	IntermediateSize int // of dense MLPs
	NumLayers        int
	NumHeads         int
	NumKVHeads       int
	HeadDim          int // of queries and keys, and of values unless MLA says otherwise
	MaxPositions     int
	RMSNormEps       float32
	Rope             Rope
	TieEmbeddings    bool
	QKVBias          bool
	OBias            bool
	MLPBias          bool
	QKNorm           bool // q and k are normed before they turn; see QKNormWhole and QKNormPlain
	InitializerRange float64
	BOS, EOS, PAD    []int // token ids, empty where config.json has none

	NormOffset    float32 // a norm's weight is NormOffset + w
	SandwichNorms bool    // the outputs of attention and MLP are normed too, before they are added
	LayerNorm     bool    // norms are LayerNorm, not RMSNorm; then no outputs, queries or keys are normed
	NormBias      bool    // a LayerNorm has a bias
	Ungated       bool    // the MLP is down(f(up(x))), without a gate
	Parallel      bool    // the MLP reads the block's input, as attention does, not what attention made of it
	SharedNorm    bool    // in a parallel block one norm serves attention and MLP
	OutputNorms   bool    // these outputs are normed, and the inputs of attention and MLP are not
	QKNormWhole   bool    // q/k norm is over all heads of a token at once, with a weight for each element; else over each head
	QKNormPlain   bool    // q/k norm, of each head, has no weights, and blocks whose queries and keys do not turn are without it
	QKNormTurned  bool    // q/k norm, which has weights, is behind the rotation
	EmbedScale    float64 // embeddings are multiplied by it; 0: 1
	EmbedRounded  bool    // EmbedScale is rounded to the type of activations before it multiplies
	ResidualScale float64 // the outputs of attention and MLP are multiplied by it before they are added; 0: 1. Their inputs are normed
	Activation    Activation
	// ClampedSwiGLU, unless nil, is what takes the place of f(gate)·up in a gated MLP.
	ClampedSwiGLU *ClampedSwiGLU
	AttnScale     float64 // of the scores; 0: 1/√HeadDim
	AttnSoftcap   float64 // scores become cap·tanh(score/cap); 0: they don't
	LogitSoftcap  float64 // the same for the logits
	HeadBias      bool    // logits have a bias
	LogitScale    float64 // logits are multiplied by it, before they are capped; 0: 1
	// LearnedPositions says that each of MaxPositions positions has a learned row that is added to the embedding, and
	// that nothing is rotated. No document may be longer.
	LearnedPositions bool
	// ResidualInit says that matrices whose product is added to the hidden state begin 1/√(2·NumLayers) as large.
	ResidualInit bool

	// SlidingWindow is how many positions a query sees, its own included, in a block for
	// which Sliding is true; where Sliding is nil, in every block. 0: it sees all.
	SlidingWindow int
	Sliding       []bool
	// LocalRope is the rotary embedding of blocks with a sliding window where it
	// differs from Rope.
	LocalRope *Rope

	// ChunkSize cuts a document into stretches of so many positions, the last maybe shorter: in a block for which
	// ChunkedAttention is true a query sees those up to its own of its stretch alone. Such a block has no sliding window. 0: nothing is cut.
	ChunkSize        int
	ChunkedAttention []bool

	// QueryScaling multiplies queries by a factor that grows with their position, in the blocks of NoRope or, where there are
	// none, in all; nil: it does not.
	QueryScaling *QueryScaling

	// NoRope are the blocks whose queries and keys do not turn; nil: none.
	NoRope []bool
	// RopeInterleaved says that rotary embeddings turn pairs of neighbours, elements 2i and 2i+1 of
	// those that turn, in place of elements that lie half their number apart.
	RopeInterleaved bool

	// Experts take the place of the MLP in the blocks that HasExperts names.
	NumExperts          int // 0: none anywhere
	NumExpertsPerTok    int
	MoEIntermediateSize int
	NormTopKProb        bool  // the chosen experts' weights are made to sum to 1
	DecoderSparseStep   int   // one block in so many has experts: the last of each so many
	MLPOnlyLayers       []int // blocks that have no experts although DecoderSparseStep says so
	OutputRouterLogits  bool  // training adds the auxiliary loss
	RouterAuxLossCoef   float64
	RouterBias          bool // the router's product has a bias
	ExpertBias          bool // those of experts have

	Sinks bool // each head's softmax has one more term, a parameter, whose value is 0

	MLA *MLA // attention's queries, keys and values are made of narrow vectors; nil: they are not

	// SparseMixer weights each chosen expert by a softmax over those that are near it, as op.RouterRule.Near says; 0: it is not so.
	SparseMixer float64

	// OutputGate says that attention's output is multiplied by the sigmoid of a gate, which is made as queries are.
	OutputGate bool
	// GatedDeltaNet takes the place of attention in the blocks that Recurrent is true of.
	GatedDeltaNet *GatedDeltaNet
	Recurrent     []bool

	// How experts are chosen and weighted, where that is not a softmax over all logits.
	SigmoidScores                       bool    // an expert's score is the sigmoid of its logit
	ChoiceBias                          bool    // a bias is added to scores for the choice alone; it is not trained
	ExpertGroups, OpenGroups, GroupBest int     // as in op.RouterRule; 0: there are no groups
	RoutedScale                         float64 // of the weights of chosen experts; 0: 1

	// WeightedInputs says that the input of a chosen expert is multiplied by its weight, and not its output. Then experts have no biases.
	WeightedInputs bool

	// SharedSize is the width of one more expert, which every token goes through; 0: there is none.
	// With SharedGate its output is multiplied by the sigmoid of one more logit of the router.
	// With SharedBias its products have biases.
	SharedSize int
	SharedGate bool
	SharedBias bool

	// MXFP4 says that the experts of the directory that was read are in MXFP4 there. What is saved is not, and JSON does not say it.
	MXFP4 bool

	// Class is the class that config.json names where it is not Arch: weights of the class of ModelType are expected. Empty: it is Arch, or none.
	Class string

	// Dropout says in words what dropout config.json asks for, which mt trains without; empty: none.
	Dropout string
	Freeze  Freeze // which tensors are not trained; set by SetFreeze

	freezing freezing           // Freeze, compiled
	grouping [][]*regexp.Regexp // of each group of SetGroups, its expressions
	family   *family            // the family whose tensor names it has; nil: Llama's
	prefix   prefix             // how its tensors' names begin; zero: as the family's first prefix says
	turned   bool               // matrices of experts are stored the other way round than the family's places say
	// headTells: the config does not say whether embeddings are tied; the weights do.
	headTells bool
	source    source // config.json as it was read; empty for an inline config
}

// HasExperts tells whether the MLP of the given block is made of experts.
func (c *Config) HasExperts(block int) bool {
	return c.NumExperts > 0 && c.DecoderSparseStep > 0 && (block+1)%c.DecoderSparseStep == 0 && !slices.Contains(c.MLPOnlyLayers, block)
}

// ExpertBlocks is how many blocks have experts.
func (c *Config) ExpertBlocks() int {
	n := 0
	for b := range c.NumLayers {
		if c.HasExperts(b) {
			n++
		}
	}
	return n
}

// AllExperts is how many experts a block with experts has, the shared one, which is the last, included.
func (c *Config) AllExperts() int { return c.NumExperts + c.shared() }

// AllChosen is how many of them a token goes through.
func (c *Config) AllChosen() int { return c.NumExpertsPerTok + c.shared() }

func (c *Config) shared() int {
	if c.SharedSize > 0 {
		return 1
	}
	return 0
}

// ExpertSize is the width of expert e of a block with experts.
func (c *Config) ExpertSize(e int) int {
	if e == c.NumExperts {
		return c.SharedSize
	}
	return c.MoEIntermediateSize
}

// Turns says whether a block's queries and keys have a rotary embedding.
func (c *Config) Turns(block int) bool {
	return !c.LearnedPositions && (c.NoRope == nil || !c.NoRope[block]) && !c.IsRecurrent(block)
}

// NormsQK says whether a block's queries and keys are normed.
func (c *Config) NormsQK(block int) bool { return c.QKNorm && (!c.QKNormPlain || c.Turns(block)) }

// NormsOutputs says whether the outputs of attention and MLP are normed before they are added, and
// NormsInputs whether their inputs are normed.
func (c *Config) NormsOutputs() bool { return c.SandwichNorms || c.OutputNorms }

// NormsInputs says it of inputs; see NormsOutputs.
func (c *Config) NormsInputs() bool { return !c.OutputNorms }

// Window is how many positions a query of block sees at most, its own included;
// 0: all.
func (c *Config) Window(block int) int {
	if c.Sliding != nil && !c.Sliding[block] {
		return 0
	}
	return c.SlidingWindow
}

// AttentionChunk is the size of the stretches that documents are cut into in a block; 0: they are not cut.
func (c *Config) AttentionChunk(block int) int {
	if c.ChunkedAttention == nil || !c.ChunkedAttention[block] {
		return 0
	}
	return c.ChunkSize
}

// inlineKeys are the keys an inline config of any family may have: those of
// config.json that count, those that say nothing for a new model, and preset.
// The families have more.
var inlineKeys = []string{
	"preset", "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size",
	"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
	"max_position_embeddings", "original_max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
	"tie_word_embeddings", "initializer_range", "bos_token_id",
	"eos_token_id", "pad_token_id", "hidden_act", "attention_dropout",
	"dtype", "torch_dtype", "use_cache", "transformers_version",
}

// FromInline makes a config of a mapping with the keys of config.json, as a
// training config's `model:` has it. model_type is llama unless it or
// architectures is given; `preset: NAME` gives values for keys left out. where
// is for messages, such as "train.yaml:3: model".
func FromInline(m map[string]any, where string) (*Config, error) {
	f := &fields{where: where, vals: maps.Clone(m)}
	if f.vals == nil {
		f.vals = map[string]any{}
	}
	f.known(allInlineKeys())
	checkRopeKeys(f)
	if name := f.str("preset", ""); name != "" && f.err == nil {
		base, ok := presetOf(name)
		if !ok {
			f.fail("preset", "%s", unknownPreset(name))
		}
		f.setDefaults(base)
	}
	if !f.has("model_type") && !f.has("architectures") {
		f.vals["model_type"] = "llama"
	}
	a := findFamily(f)
	if f.err == nil && a.nested != nil {
		f.fail("model_type", "%s has parts that are not trained and cannot be made anew; take model_type %s", a.modelType, a.nested.alone)
	}
	if f.err == nil {
		f.known(a.inlineKeys())
	}
	if f.err != nil {
		return nil, f.err
	}
	return fromFields(f)
}

// inlineKeys are the keys that an inline config of the family may have: those of all, by the
// family's own names, and its own.
func (a *family) inlineKeys() []string {
	keys := slices.Clone(a.keys)
	for _, k := range inlineKeys {
		keys = append(keys, cmp.Or(a.names[k], k))
	}
	return keys
}

// allInlineKeys are the keys of all families, so that a mistake is found before
// the family is.
func allInlineKeys() []string {
	keys := slices.Clone(inlineKeys)
	for _, a := range families {
		keys = append(keys, a.inlineKeys()...)
	}
	return keys
}

// checkRopeKeys refuses unknown keys of the rotary embeddings' mappings.
func checkRopeKeys(f *fields) {
	for _, k := range []string{"rope_scaling", "rope_parameters"} {
		o := f.object(k)
		if o == nil || f.err != nil {
			continue
		}
		for _, in := range []*fields{o.object(fullAttention), o.object(slidingAttention)} {
			if in != nil {
				in.known(ropeKeys)
				o.err = cmp.Or(o.err, in.err)
			}
		}
		o.known(append([]string{fullAttention, slidingAttention}, ropeKeys...))
		f.err = o.err
	}
}

// Preset is the architecture of the given name, to be trained from scratch.
func Preset(name string) (*Config, error) {
	m, ok := presetOf(name)
	if !ok {
		return nil, fmt.Errorf("model: %s", unknownPreset(name))
	}
	return FromInline(m, "model: "+name)
}

// PresetNames are the names Preset takes, sorted, without aliases.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

func unknownPreset(name string) string {
	names := PresetNames()
	return fmt.Sprintf("no preset is called %q%s (presets: %s)", name, didYouMean(name, names), strings.Join(names, ", "))
}

// LayerName is a name of layer i for people, in a model whose layers have these kinds. A
// block with experts is two layers, so the layer's number alone would not lead to the block.
func LayerName(kinds []LayerKind, i int) string {
	what := ""
	switch kinds[i] {
	case Attention:
		what = "attention of "
	case MoE:
		what = "experts of "
	}
	if kinds[i] == Embedding || kinds[i] == Head || !slices.Contains(kinds, MoE) {
		return fmt.Sprintf("layer %d", i)
	}
	block := 0
	for _, k := range kinds[:i] {
		if k == Block || k == MoE {
			block++
		}
	}
	return fmt.Sprintf("layer %d (%sblock %d)", i, what, block)
}

// The values of layer_types.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
	chunkedAttention = "chunked_attention"
)

// windows reads layer_types, which says what blocks have a sliding window of the given size
// (0: there is none). Where the key is missing, sliding says it.
func (c *Config) windows(f *fields, size int, sliding func(block int) bool) {
	has := c.blocksOf(f, slidingAttention, "sliding window", size, sliding)
	if !slices.Contains(has, true) {
		return
	}
	c.SlidingWindow = size
	if slices.Contains(has, false) {
		c.Sliding = has
	}
}

// chunkedFields reads attention_chunk_size, and layer_types, which says in what blocks documents are cut into such
// chunkedFields. Where the latter is missing these are the blocks that turn.
func (c *Config) chunkedFields(f *fields) {
	size := f.int("attention_chunk_size", 0, 1, maxPositions)
	if has := c.blocksOf(f, chunkedAttention, "attention_chunk_size", size, c.Turns); slices.Contains(has, true) {
		c.ChunkSize, c.ChunkedAttention = size, has
	}
}

// blocksOf are the blocks that layer_types gives attention of a kind other than full_attention, whose size is what and
// must not be 0. Where the key is missing, by says which they are, if there is a size.
func (c *Config) blocksOf(f *fields, kind, what string, size int, by func(block int) bool) []bool {
	types := c.typesOfLayers(f)
	if f.err != nil {
		return nil
	}
	has := make([]bool, c.NumLayers)
	for b := range has {
		has[b] = size > 0 && by(b)
		if types != nil {
			has[b] = types[b] == kind
			switch {
			case !has[b] && types[b] != fullAttention:
				f.fail("layer_types", "layer %d is %q; known: %s, %s", b, types[b], fullAttention, kind)
			case has[b] && size == 0:
				f.fail("layer_types", "layer %d is %q, and there is no %s", b, types[b], what)
			}
		}
	}
	return has
}

// typesOfLayers is the key layer_types, which has one for each layer; nil where it is missing.
func (c *Config) typesOfLayers(f *fields) []string {
	types := f.strs("layer_types")
	if types != nil && len(types) != c.NumLayers {
		f.fail("layer_types", "%d of them for %d layers", len(types), c.NumLayers)
	}
	return types
}

// uniformWindow gives all blocks the window of the key sliding_window, if there is one.
func (c *Config) uniformWindow(f *fields) {
	size := f.int("sliding_window", 0, 1, maxPositions)
	c.windows(f, size, func(int) bool { return true })
	if c.SlidingWindow != size || c.Sliding != nil {
		f.fail("layer_types", "this architecture has the sliding window in every layer or in none; remove layer_types")
	}
}

// noWindow refuses blocks with a sliding window.
func (c *Config) noWindow(f *fields) {
	for i, t := range f.strs("layer_types") {
		if t != fullAttention {
			f.fail("layer_types", "layer %d is %q; only %s is supported", i, t, fullAttention)
		}
	}
}

// layerTypes is the key layer_types.
func (c *Config) layerTypes() []string {
	out := make([]string, c.NumLayers)
	for b := range out {
		out[b] = fullAttention
		if c.Window(b) > 0 {
			out[b] = slidingAttention
		}
		if c.AttentionChunk(b) > 0 {
			out[b] = chunkedAttention
		}
	}
	return out
}

// QueryScaling is what queries are multiplied by at position p of their document, 1 + Scale·ln(1 + ⌊(p + Ahead)/Every⌋): scores
// grow with the number of positions that a query sees. Source: arXiv:2501.19399; transformers.Llama4TextConfig, where it is
// called attn_temperature_tuning.
type QueryScaling struct {
	Scale, Every float64
	Ahead        int
}

// At is the factor at position p.
func (t QueryScaling) At(p int) float64 {
	return 1 + t.Scale*math.Log1p(math.Floor(float64(p+t.Ahead)/t.Every))
}

// ScalesQueries says whether a block's queries are multiplied by QueryScaling.
func (c *Config) ScalesQueries(block int) bool {
	return c.QueryScaling != nil && (c.NoRope == nil || c.NoRope[block])
}
