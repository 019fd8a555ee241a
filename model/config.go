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

// Activation is the activation function of an MLP. In a gated MLP it is applied to the gate.
type Activation uint8

// The activations. Each comment lists the values of config.json's hidden_act that mean it.
const (
	SiLU        Activation = iota // "silu", "swish"
	GELUTanh                      // "gelu_pytorch_tanh", "gelu_new"
	GELU                          // "gelu"
	ReLU                          // "relu"
	SquaredReLU                   // "relu2", for MLPs without a gate
	XIELU                         // "xielu", for MLPs without a gate; it has two parameters
)

// ClampedSwiGLU is a gated activation with clamped inputs: g·σ(Alpha·g)·(u+1), where g = min(gate, Limit) and u is
// up clamped to ±Limit. Source: the gpt-oss model card, arXiv:2508.10925.
type ClampedSwiGLU struct{ Alpha, Limit float64 }

// Config describes a decoder-only architecture in the terms of config.json. From NormOffset on, a field's zero
// value is Llama's setting.
type Config struct {
	Arch             string // "LlamaForCausalLM"
	ModelType        string // "llama", "qwen2", …
	VocabSize        int
	HiddenSize       int
	IntermediateSize int // of dense MLPs
	NumLayers        int
	NumHeads         int
	NumKVHeads       int
	HeadDim          int // of queries and keys; of values too, unless MLA sets another width
	MaxPositions     int
	RMSNormEps       float32
	Rope             Rope
	TieEmbeddings    bool
	QKVBias          bool
	OBias            bool
	MLPBias          bool
	QKNorm           bool // q and k are normed before rotation; see QKNormWhole and the fields after it
	InitializerRange float64
	BOS, EOS, PAD    []int // token ids, empty where config.json has none

	NormOffset    float32 // a norm's weight is NormOffset + w
	SandwichNorms bool    // the outputs of attention and MLP are normed before the residual addition, in addition to the inputs
	LayerNorm     bool    // norms are LayerNorm, not RMSNorm; then no outputs, queries or keys are normed
	NormBias      bool    // a LayerNorm has a bias
	Ungated       bool    // the MLP is down(f(up(x))), without a gate
	Parallel      bool    // parallel block: the MLP reads the block's input, as attention does
	SharedNorm    bool    // in a parallel block one norm serves attention and MLP
	OutputNorms   bool    // only the outputs of attention and MLP are normed, not their inputs
	QKNormWhole   bool    // q/k norm runs over all heads of a token at once, with one weight per element; false: over each head
	QKNormPlain   bool    // q/k norm runs over each head without weights
	QKNormTurning bool    // only blocks with a rotary embedding have q/k norm
	QKNormRotated bool    // q/k norm runs over each head, with weights, after the rotation
	// EmbedNorm norms the embedding's output, without weights.
	EmbedNorm bool
	// FinalNormPlain says that the weight of the last norm is w, without NormOffset.
	FinalNormPlain bool
	OutputNormEps  float32 // ε of the norms of attention's and the MLP's output; 0: RMSNormEps
	EmbedScale     float64 // factor on the embeddings; 0: 1
	EmbedRounded   bool    // EmbedScale is rounded to the activations' type before the multiplication
	ResidualScale  float64 // factor on the outputs of attention and MLP before the residual addition; 0: 1. Their inputs are normed
	Activation     Activation
	// ClampedSwiGLU replaces f(gate)·up in a gated MLP; nil: nothing is clamped.
	ClampedSwiGLU *ClampedSwiGLU
	AttnScale     float64 // factor on the scores; 0: 1/√HeadDim
	AttnSoftcap   float64 // scores become cap·tanh(score/cap); 0: no cap
	LogitSoftcap  float64 // the same cap for the logits; 0: no cap
	HeadBias      bool    // logits have a bias
	LogitScale    float64 // factor on the logits, before LogitSoftcap; 0: 1
	// LearnedPositions adds a learned row per position to the embedding, and nothing is rotated. No document may be
	// longer than MaxPositions.
	LearnedPositions bool
	// ResidualInit scales the initial values of matrices that write to the residual stream by 1/√(2·NumLayers).
	ResidualInit bool

	// SlidingWindow is how many positions a query attends to, its own included; 0: all. The window holds in blocks
	// where Sliding is true; Sliding nil: in every block.
	SlidingWindow int
	Sliding       []bool
	// LocalRope is the rotary embedding of blocks with a sliding window; nil: Rope.
	LocalRope *Rope

	// ChunkSize is the length in positions of the chunks that a document is cut into; 0: no chunks. The last chunk
	// may be shorter. In blocks where ChunkedAttention is true, a query attends only to the positions of its
	// own chunk up to itself, and there is no sliding window.
	ChunkSize        int
	ChunkedAttention []bool

	// QueryScaling multiplies queries by a factor that grows with the position. It applies in the blocks that NoRope
	// marks or, if NoRope is nil, in all blocks. nil: no scaling.
	QueryScaling *QueryScaling

	// GlobalHeadDim and GlobalKVHeads replace HeadDim and NumKVHeads in blocks without a sliding window; 0: they do not.
	GlobalHeadDim, GlobalKVHeads int
	// KeysAreValues says that blocks without a sliding window have no projection of values: a value is the key before
	// its norm and rotation.
	KeysAreValues bool
	// NormsValues norms each head of the values, without weights. It needs QKNorm.
	NormsValues bool
	// LayerScalar multiplies the output of a block by a number that the checkpoint has and nothing trains.
	LayerScalar bool

	// Ahead is the number of trained modules for multi-token prediction: 0, or 1 after PredictAhead.
	Ahead int
	// PerLayerSize is the width of the per-layer input, which every block multiplies by a gate of its output and adds to
	// this output; 0: there are none. A token's per-layer inputs are the rows of a second table, with PerLayerVocab
	// rows, plus a projection of the embedding.
	PerLayerSize, PerLayerVocab int
	// SharedKV is the number of last blocks that have no keys and values of their own. Such a block reads those of the
	// last earlier block of its kind, with or without a window. 0: none. It needs QKNorm and NormsValues.
	SharedKV int
	// DoubleWide doubles the width of the MLP in the last SharedKV blocks.
	DoubleWide bool

	// NoRope marks the blocks whose queries and keys are not rotated; nil: none.
	NoRope []bool
	// RopeInterleaved pairs neighbours for the rotation, elements 2i and 2i+1. false: element i is paired with the
	// element half the rotated width further on.
	RopeInterleaved bool

	// In blocks for which HasExperts is true, routed experts replace the MLP.
	NumExperts          int // 0: none anywhere
	NumExpertsPerTok    int
	MoEIntermediateSize int
	NormTopKProb        bool  // the weights of the chosen experts are normalized to sum to 1
	DecoderSparseStep   int   // every DecoderSparseStep-th block has experts
	MLPOnlyLayers       []int // blocks without experts, in spite of DecoderSparseStep
	OutputRouterLogits  bool  // training adds the auxiliary loss
	RouterAuxLossCoef   float64
	RouterBias          bool // the router has a bias
	ExpertBias          bool // the experts have biases

	Sinks bool // attention sinks: each head's softmax has one more learned logit, whose value is 0

	MLA *MLA // multi-head latent attention; nil: none

	// SparseMixer is the threshold of SparseMixer routing (Phi-3.5-MoE): half the relative difference of two logits up
	// to which their experts count as similar (op.RouterRule.Near). 0: other routing.
	SparseMixer float64

	// OutputGate multiplies attention's output by a sigmoid gate, which a projection beside the queries makes.
	OutputGate bool
	// A recurrence replaces attention in the blocks where Recurrent is true. The first of these fields that is not nil
	// says which recurrence.
	GatedDeltaNet *GatedDeltaNet
	ShortConv     *ShortConv
	Mamba2        *Mamba2
	KDA           *KDA
	Recurrent     []bool

	// Alone is for models whose blocks may have only one of their two halves: attention or a
	// recurrence, and then MLP or experts. It says which half each block has; nil: all blocks have
	// both.
	Alone []Half

	// Beside gives every block a Mamba-2 mixer that runs in parallel with attention. Both read the
	// same norm's output, and their outputs are added.
	Beside bool
	// Multipliers are constant factors on activations, beside EmbedScale, ResidualScale and others;
	// nil: none.
	Multipliers *Multipliers

	// How the router chooses and weights experts. The zero values: by a softmax over all logits.
	SigmoidScores                       bool    // an expert's score is the sigmoid of its logit
	ChoiceBias                          bool    // a bias, not trained, is added to the scores for the choice alone
	ExpertGroups, OpenGroups, GroupBest int     // as in op.RouterRule; 0: no groups
	RoutedScale                         float64 // factor on the weights of chosen experts; 0: 1

	// DenseBesideExperts gives blocks with experts a dense MLP too. Both read the residual stream by norms of their own,
	// their outputs are normed and added, and the sum is normed again. The router has a norm of its own, whose result is
	// divided by √HiddenSize, and each expert has a trained factor on its weights.
	DenseBesideExperts bool

	// WeightedInputs multiplies a chosen expert's input by its weight, instead of its output. Experts then have no
	// biases.
	WeightedInputs bool

	// SharedSize is the width of the shared expert, which every token passes; 0: there is none. SharedGate
	// multiplies the shared expert's output by the sigmoid of one more router logit. SharedBias gives the shared
	// expert biases.
	SharedSize int
	SharedGate bool
	SharedBias bool

	// Quantized describes the quantized weights of the directory that was read; nil: none are. JSON leaves it out, JSONAsRead keeps it.
	Quantized *Quantized

	// Class is the class that config.json names in architectures if it differs from Arch, for
	// example a base class without a head. Tensor names are then as in the class that belongs to
	// ModelType. "": config.json names Arch, or no class.
	Class string

	// Dropout describes the dropout that config.json asks for. mt trains without dropout. "": none.
	Dropout string
	Freeze  Freeze // tensors that are not trained; set by SetFreeze

	freezing freezing           // Freeze, compiled
	grouping [][]*regexp.Regexp // the regular expressions of each group of SetGroups
	family   *family            // the family whose tensor names the model has; nil: Llama's
	prefix   prefix             // the start of tensor names; zero: the family's first prefix
	// othersNamed says that tensors have the family's other names.
	othersNamed bool
	joined      bool // experts are stored as the family's joined says
	aheadJoined bool // the same for the experts of multi-token prediction
	aheadOwn    bool // the module for multi-token prediction has its own embedding
	turned      bool // expert matrices are stored transposed, compared with the family's places
	// headTells: the config does not say whether embeddings are tied, so the weights decide.
	headTells bool
	source    source // config.json as it was read; empty for an inline config
}

// Half names a half of a decoder block. The first half mixes tokens: attention or a recurrence. The
// second half works on each token alone: MLP or experts.
type Half uint8

// The values of Half. Config.Alone has one for each block.
const (
	BothHalves Half = iota
	FirstHalf       // attention or a recurrence
	SecondHalf      // MLP or experts
)

// Mixes says whether a block has its first half, which mixes tokens by attention or a recurrence.
func (c *Config) Mixes(block int) bool { return c.Alone == nil || c.Alone[block] != SecondHalf }

// HasMLP says whether a block has a dense MLP.
func (c *Config) HasMLP(block int) bool {
	return !c.HasExperts(block) && (c.Alone == nil || c.Alone[block] != FirstHalf)
}

// AttentionBlocks returns the number of blocks with attention.
func (c *Config) AttentionBlocks() (n int) {
	for b := range c.Blocks() {
		if c.Mixes(b) && !c.IsRecurrent(b) {
			n++
		}
	}
	return n
}

// FirstLayer returns the kind of a block's first layer.
func (c *Config) FirstLayer(block int) LayerKind {
	switch recurrent, whole := c.IsRecurrent(block), c.HasMLP(block); {
	case !c.Mixes(block) && whole:
		return MLP
	case !c.Mixes(block):
		return MoE
	case recurrent && whole:
		return Recurrent
	case recurrent:
		return Mixer
	case whole:
		return Block
	}
	return Attention
}

// HasExperts tells whether the MLP of the given block is made of experts.
func (c *Config) HasExperts(block int) bool {
	return c.NumExperts > 0 && c.DecoderSparseStep > 0 && (block+1)%c.DecoderSparseStep == 0 && !slices.Contains(c.MLPOnlyLayers, block)
}

// ExpertBlocks returns the number of blocks with experts.
func (c *Config) ExpertBlocks() int {
	n := 0
	for b := range c.Blocks() {
		if c.HasExperts(b) {
			n++
		}
	}
	return n
}

// AllExperts returns the number of experts in a block with experts. It counts the shared expert, if there is one, which
// has the last index.
func (c *Config) AllExperts() int { return c.NumExperts + c.shared() }

// AllChosen returns how many experts process a token, the shared expert included.
func (c *Config) AllChosen() int { return c.NumExpertsPerTok + c.shared() }

func (c *Config) shared() int {
	if c.SharedSize > 0 {
		return 1
	}
	return 0
}

// ExpertSize returns the width of expert e: how many elements its gate and its up projection have.
func (c *Config) ExpertSize(e int) int {
	if e == c.NumExperts {
		return c.SharedSize
	}
	return c.MoEIntermediateSize
}

// Turns says whether a block rotates its queries and keys by a rotary embedding.
func (c *Config) Turns(block int) bool {
	return !c.LearnedPositions && (c.NoRope == nil || !c.NoRope[block]) && !c.IsRecurrent(block)
}

// NormsQK says whether a block's queries and keys are normed.
func (c *Config) NormsQK(block int) bool { return c.QKNorm && (!c.QKNormTurning || c.Turns(block)) }

// NormsOutputs says whether the outputs of attention and MLP are normed before the residual addition.
func (c *Config) NormsOutputs() bool { return c.SandwichNorms || c.OutputNorms }

// NormsExperts says whether the sum of a block's experts is normed, alone or beside a dense MLP.
func (c *Config) NormsExperts() bool { return c.NumExperts > 0 && c.NormsOutputs() }

// NormsInputs says whether the inputs of attention and MLP are normed.
func (c *Config) NormsInputs() bool { return !c.OutputNorms }

// Heads describes the heads of a block's attention.
type Heads struct {
	Dim int // width of a query or key
	KV  int // number of key/value heads
	// KeysAreValues says that the block has no projection of values: a value is the key before its norm and rotation.
	KeysAreValues bool
	// Shared says that the block has no projections of keys and values: it reads another block's (Config.SharedKV).
	Shared bool
}

// SharesKV says whether a block reads the keys and values of another block.
func (c *Config) SharesKV(block int) bool { return c.SharedKV > 0 && block >= c.NumLayers-c.SharedKV }

// sourceOfKV returns the block whose keys and values a block reads; -1: there is none.
func (c *Config) sourceOfKV(block int) int {
	for b := min(block, c.NumLayers-c.SharedKV-1); b >= 0; b-- {
		if (c.Window(b) > 0) == (c.Window(block) > 0) {
			return b
		}
	}
	return -1
}

// LendsKV says whether other blocks read the block's keys and values.
func (c *Config) LendsKV(block int) bool {
	for b := c.NumLayers - c.SharedKV; b < c.NumLayers && !c.SharesKV(block); b++ {
		if c.sourceOfKV(b) == block {
			return true
		}
	}
	return false
}

// LastReader says whether no later block reads the keys and values that the block reads from another one.
func (c *Config) LastReader(block int) bool {
	for b := block + 1; b < c.NumLayers; b++ {
		if (c.Window(b) > 0) == (c.Window(block) > 0) {
			return false
		}
	}
	return c.SharesKV(block)
}

// MLPSize returns the width of a block's dense MLP.
func (c *Config) MLPSize(block int) int {
	if c.DoubleWide && c.SharesKV(block) {
		return 2 * c.IntermediateSize
	}
	return c.IntermediateSize
}

// Heads returns the heads of a block's attention.
func (c *Config) Heads(block int) Heads {
	shared := c.SharesKV(block)
	if c.Window(block) > 0 {
		return Heads{Dim: c.HeadDim, KV: c.NumKVHeads, Shared: shared}
	}
	return Heads{cmp.Or(c.GlobalHeadDim, c.HeadDim), cmp.Or(c.GlobalKVHeads, c.NumKVHeads), c.KeysAreValues && !shared, shared}
}

// Window returns how many positions a query of the block attends to at most, its own included; 0: all.
func (c *Config) Window(block int) int {
	if c.Sliding != nil && !c.Sliding[block] {
		return 0
	}
	return c.SlidingWindow
}

// AttentionChunk returns the size of the block's attention chunks; 0: documents are not cut.
func (c *Config) AttentionChunk(block int) int {
	if c.ChunkedAttention == nil || !c.ChunkedAttention[block] {
		return 0
	}
	return c.ChunkSize
}

// inlineKeys are the keys that an inline config (`model:` with a mapping in a training config) may have in any family.
// They are preset, the keys of config.json that matter, and keys without meaning for a new model. Each family adds its
// own.
var inlineKeys = []string{
	"preset", "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size",
	"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
	"max_position_embeddings", "original_max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
	"tie_word_embeddings", "initializer_range", "bos_token_id",
	"eos_token_id", "pad_token_id", "hidden_act", "attention_dropout",
	"dtype", "torch_dtype", "use_cache", "transformers_version",
}

// FromInline makes a config from a mapping with the keys of config.json, as in `model:` of a training config. The
// family is that of model_type; if model_type and architectures are missing, it is llama. `preset: NAME` fills in
// missing keys. `where` begins error messages, such as "train.yaml:3: model".
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

// inlineKeys returns the keys that an inline config of the family may have: the shared keys, under the family's names
// for them, and the family's own.
func (a *family) inlineKeys() []string {
	keys := slices.Clone(a.keys)
	for _, k := range inlineKeys {
		keys = append(keys, cmp.Or(a.names[k], k))
	}
	return keys
}

// allInlineKeys returns the inline keys of all families together. FromInline refuses all other keys
// before it looks for the family.
func allInlineKeys() []string {
	keys := slices.Clone(inlineKeys)
	for _, a := range families {
		keys = append(keys, a.inlineKeys()...)
	}
	return keys
}

// checkRopeKeys refuses unknown keys in rope_scaling and rope_parameters, the mappings that describe rotary embeddings.
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

// Preset returns the named architecture, to be trained from scratch.
func Preset(name string) (*Config, error) {
	m, ok := presetOf(name)
	if !ok {
		return nil, fmt.Errorf("model: %s", unknownPreset(name))
	}
	return FromInline(m, "model: "+name)
}

// PresetNames returns the names that Preset takes, sorted, without aliases.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

func unknownPreset(name string) string {
	names := PresetNames()
	return fmt.Sprintf("no preset is called %q%s (presets: %s)", name, didYouMean(name, names), strings.Join(names, ", "))
}

// LayerName names layer i in messages. kinds has the kind of each of the model's layers. A block
// with experts is two layers, so the name includes the block's number.
func LayerName(kinds []LayerKind, i int) string {
	what := ""
	switch kinds[i] {
	case Attention:
		what = "attention of "
	case MoE:
		what = "experts of "
	}
	switch kinds[i] {
	case AheadInput:
		return fmt.Sprintf("layer %d (input of multi-token prediction)", i)
	case AheadNorm:
		return fmt.Sprintf("layer %d (norm of multi-token prediction)", i)
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

// The values that layer_types in config.json may have, one for each layer.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
	chunkedAttention = "chunked_attention"
)

// windows reads from layer_types which blocks have a sliding window. size is the window in positions; 0: no block has
// one. If layer_types is missing, sliding says which blocks have the window.
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

// turnInWindows leaves the rotary embedding to blocks with a sliding window alone.
func (c *Config) turnInWindows() {
	none := make([]bool, c.NumLayers)
	for b := range none {
		if none[b] = c.Window(b) == 0; none[b] {
			c.NoRope = none
		}
	}
}

// chunkedFields reads attention_chunk_size, and from layer_types which blocks have chunked attention. If layer_types is
// missing, the blocks with a rotary embedding have it.
func (c *Config) chunkedFields(f *fields) {
	size := f.int("attention_chunk_size", 0, 1, maxPositions)
	if has := c.blocksOf(f, chunkedAttention, "attention_chunk_size", size, c.Turns); slices.Contains(has, true) {
		c.ChunkSize, c.ChunkedAttention = size, has
	}
}

// blocksOf returns which blocks have attention of the given kind, such as sliding_attention. It
// reads layer_types, whose other entries must all be full_attention. size is the
// window or chunk size in tokens, and what is its name in error messages. A block of the kind with
// size 0 is an error. Without layer_types the function by decides which blocks have the kind; with
// size 0 none has.
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

// typesOfLayers returns the list layer_types of config.json; nil: missing. A list that does not
// have one entry per layer is an error.
func (c *Config) typesOfLayers(f *fields) []string {
	types := f.strs("layer_types")
	if types != nil && len(types) != c.NumLayers {
		f.fail("layer_types", "%d of them for %d layers", len(types), c.NumLayers)
	}
	return types
}

// uniformWindow reads sliding_window as the window of all blocks. It is an error if layer_types gives the window to
// some blocks only.
func (c *Config) uniformWindow(f *fields) {
	size := f.int("sliding_window", 0, 1, maxPositions)
	c.windows(f, size, func(int) bool { return true })
	if c.SlidingWindow != size || c.Sliding != nil {
		f.fail("layer_types", "this architecture has the sliding window in every layer or in none; remove layer_types")
	}
}

// noWindow refuses a config in which layer_types gives any block a sliding window.
func (c *Config) noWindow(f *fields) {
	for i, t := range f.strs("layer_types") {
		if t != fullAttention {
			f.fail("layer_types", "layer %d is %q; only %s is supported", i, t, fullAttention)
		}
	}
}

// layerTypes returns the value of layer_types that describes c, for the config.json that is
// written.
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

// QueryScaling multiplies the query at position p of its document by 1 + Scale·ln(1 + ⌊(p + Ahead)/Every⌋), so that
// scores grow with the number of attended positions. Source: arXiv:2501.19399; transformers.Llama4TextConfig, where
// the key is attn_temperature_tuning.
type QueryScaling struct {
	Scale, Every float64
	Ahead        int
}

// At returns the factor for a query at position p of its document.
func (t QueryScaling) At(p int) float64 {
	return 1 + t.Scale*math.Log1p(math.Floor(float64(p+t.Ahead)/t.Every))
}

// ScalesQueries says whether a block's queries are multiplied by QueryScaling.
func (c *Config) ScalesQueries(block int) bool {
	return c.QueryScaling != nil && (c.NoRope == nil || c.NoRope[block])
}
