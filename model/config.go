package model

import (
	"cmp"
	"math"
	"slices"
)

// Activation is the function of a gated MLP's gate.
type Activation uint8

// The activations, by the names of config.json's hidden_act.
const (
	SiLU     Activation = iota // "silu", "swish"
	GELUTanh                   // "gelu_pytorch_tanh"
)

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
	HeadDim          int
	MaxPositions     int
	RMSNormEps       float32
	Rope             Rope
	TieEmbeddings    bool
	QKVBias          bool
	OBias            bool
	MLPBias          bool
	QKNorm           bool
	InitializerRange float64
	BOS, EOS, PAD    []int // token ids, empty where config.json has none

	NormOffset    float32 // a norm's weight is NormOffset + w
	SandwichNorms bool    // the outputs of attention and MLP are normed too, before they are added
	EmbedScale    float64 // embeddings are multiplied by it; 0: 1
	Activation    Activation
	AttnScale     float64 // of the scores; 0: 1/√HeadDim
	AttnSoftcap   float64 // scores become cap·tanh(score/cap); 0: they don't
	LogitSoftcap  float64 // the same for the logits

	// SlidingWindow is how many positions a query sees, its own included, in a block for
	// which Sliding is true; where Sliding is nil, in every block. 0: it sees all.
	SlidingWindow int
	Sliding       []bool
	// LocalRope is the rotary embedding of blocks with a sliding window where it
	// differs from Rope.
	LocalRope *Rope

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

	// What is planned and not trained; see Untrained.
	Latent        *Latent // attention's queries, keys and values are made of narrow vectors; nil: they are not
	Sinks         bool    // each head's softmax has one more term
	RouterBias    bool
	ExpertBias    bool
	SharedExperts int // experts that every token goes through, beside those that are chosen

	Freeze Freeze // which tensors are not trained; set by SetFreeze

	family *family // the family whose tensor names it has; nil: Llama's
	prefix prefix  // how its tensors' names begin; zero: as the family's first prefix says
	source source  // config.json as it was read; empty for an inline config
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

// Untrained says of a model that mt can plan and not train what mt lacks for it, and how a plan
// takes it all the same. Both are empty for models that mt trains.
func (c *Config) Untrained() (lacking, planned string) {
	if f := c.familyOf(); f != nil {
		return f.untrained, f.planned
	}
	return "", ""
}

// OutputCols is how many elements of a token attention's output projection takes.
func (c *Config) OutputCols() int {
	if c.Latent != nil {
		return c.NumHeads * c.Latent.ValueDim
	}
	return c.NumHeads * c.HeadDim
}

// SharedSize is the width of the experts that every token goes through, together.
func (c *Config) SharedSize() int { return c.SharedExperts * c.MoEIntermediateSize }

// Window is how many positions a query of block sees at most, its own included;
// 0: all.
func (c *Config) Window(block int) int {
	if c.Sliding != nil && !c.Sliding[block] {
		return 0
	}
	return c.SlidingWindow
}

// ScoreScale is what attention's scores are multiplied by.
func (c *Config) ScoreScale() float64 {
	return cmp.Or(c.AttnScale, 1/math.Sqrt(float64(c.HeadDim)))
}
