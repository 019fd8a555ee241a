package model

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds on what a config may say. They are far above any model there is and
// keep every product of sizes, in bytes, inside an int64.
const (
	maxVocab     = 1 << 24
	maxHidden    = 1 << 18
	maxFFN       = 1 << 22
	maxLayers    = 10000
	maxHeads     = 4096
	maxHeadDim   = 4096
	maxPositions = 1 << 30
)

// architecture is what config.json leaves unsaid about a model type.
type architecture struct {
	arch, modelType string
	qkvBias         bool // q, k, v always have biases, o never
	attentionBias   bool // the key attention_bias gives biases to q, k, v and o
	mlpBias         bool // the key mlp_bias counts
	qkNorm          bool
	headDim         int // default of head_dim; 0: hidden_size / num_attention_heads
	maxPositions    int // default of max_position_embeddings
}

var architectures = []architecture{
	{arch: "LlamaForCausalLM", modelType: "llama", attentionBias: true, mlpBias: true, maxPositions: 2048},
	{arch: "Qwen2ForCausalLM", modelType: "qwen2", qkvBias: true, maxPositions: 32768},
	{arch: "Qwen3ForCausalLM", modelType: "qwen3", attentionBias: true, qkNorm: true, headDim: 128, maxPositions: 32768},
}

// LoadDir reads dir/config.json, a Hugging Face model directory's. Errors name
// the file and the key.
func LoadDir(dir string) (*Config, error) {
	file := filepath.Join(dir, "config.json")
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("%s: no such file; a model directory holds config.json and *.safetensors, as save_pretrained writes them", file)
	}
	if err != nil {
		return nil, fmt.Errorf("read model config: %w", err)
	}
	return ParseConfig(raw, file)
}

// ParseConfig reads the text of a config.json in the spelling of Transformers 4
// or 5; file is for messages. The text is kept: JSON gives it back.
func ParseConfig(raw []byte, file string) (*Config, error) {
	src, vals, err := scanObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c, err := fromFields(&fields{where: file, vals: vals})
	if err != nil {
		return nil, err
	}
	c.source = src
	return c, nil
}

// fromFields makes a Config of the keys of a config.json.
func fromFields(f *fields) (*Config, error) {
	a, err := findArchitecture(f)
	if err != nil {
		return nil, err
	}
	c := &Config{
		Arch: a.arch, ModelType: a.modelType, QKNorm: a.qkNorm,
		VocabSize:        f.need("vocab_size", 1, maxVocab),
		HiddenSize:       f.need("hidden_size", 1, maxHidden),
		IntermediateSize: f.need("intermediate_size", 1, maxFFN),
		NumLayers:        f.need("num_hidden_layers", 1, maxLayers),
		NumHeads:         f.need("num_attention_heads", 1, maxHeads),
		MaxPositions:     f.int("max_position_embeddings", a.maxPositions, 1, maxPositions),
		RMSNormEps:       float32(f.float("rms_norm_eps", 1e-6, 0, 1)),
		TieEmbeddings:    f.bool("tie_word_embeddings", false),
		InitializerRange: f.float("initializer_range", 0.02, 0, 100),
	}
	c.NumKVHeads = f.int("num_key_value_heads", c.NumHeads, 1, maxHeads)
	c.headDim(f, a)
	c.biases(f, a)
	c.BOS = f.ids("bos_token_id", c.VocabSize)
	c.EOS = f.ids("eos_token_id", c.VocabSize)
	c.PAD = f.ids("pad_token_id", c.VocabSize)
	c.Rope = parseRope(f)
	if c.NumHeads%c.NumKVHeads != 0 {
		f.fail("num_attention_heads", "%d is not a multiple of num_key_value_heads, %d", c.NumHeads, c.NumKVHeads)
	}
	refuseLacking(f, c)
	if f.err != nil {
		return nil, f.err
	}
	return c, nil
}

func (c *Config) headDim(f *fields, a architecture) {
	_, given := f.vals["head_dim"]
	def := a.headDim
	if def == 0 || given {
		def = max(1, c.HiddenSize/c.NumHeads)
		if !f.has("head_dim") && c.HiddenSize%c.NumHeads != 0 {
			f.fail("hidden_size", "%d is not a multiple of num_attention_heads, %d, and there is no head_dim", c.HiddenSize, c.NumHeads)
		}
	}
	c.HeadDim = f.int("head_dim", def, 1, maxHeadDim)
	if c.HeadDim%2 != 0 || c.HeadDim > maxHeadDim {
		f.fail("head_dim", "%d must be even and at most %d: rotary embeddings turn pairs of elements", c.HeadDim, maxHeadDim)
	}
}

func (c *Config) biases(f *fields, a architecture) {
	c.QKVBias = a.qkvBias
	if a.attentionBias {
		c.QKVBias = f.bool("attention_bias", false)
		c.OBias = c.QKVBias
	}
	if a.mlpBias {
		c.MLPBias = f.bool("mlp_bias", false)
	}
}

// findArchitecture goes by architectures, then by model_type, and refuses two
// that do not belong together.
func findArchitecture(f *fields) (architecture, error) {
	archs, modelType := f.strs("architectures"), f.str("model_type", "")
	if f.err != nil {
		return architecture{}, f.err
	}
	var known []string
	for _, a := range architectures {
		known = append(known, a.arch)
		byArch := len(archs) == 1 && archs[0] == a.arch
		byType := modelType == a.modelType
		if (byArch && (byType || modelType == "")) || (byType && len(archs) == 0) {
			return a, nil
		}
	}
	what, key := strings.Join(archs, ", "), "architectures"
	if len(archs) == 0 {
		what, key = modelType, "model_type"
	}
	switch {
	case what == "":
		f.fail(key, "missing, and no architectures either; known: %s", strings.Join(known, ", "))
	case slices.Contains(known, what):
		f.fail(key, "%s does not go with model_type %q", what, modelType)
	default:
		f.fail(key, "%s is not supported; known: %s", what, strings.Join(known, ", "))
	}
	return architecture{}, f.err
}

// refuseLacking turns features this program does not have into errors, lest a
// model be trained as something else.
func refuseLacking(f *fields, c *Config) {
	if act := f.str("hidden_act", "silu"); act != "silu" && act != "swish" {
		f.fail("hidden_act", "%q is not supported, only silu", act)
	}
	if p := f.float("attention_dropout", 0, 0, 1); p > 0 {
		f.fail("attention_dropout", "%g: dropout is not supported; set it to 0 to train without", p)
	}
	if p := f.float("partial_rotary_factor", 1, 0, 1); p != 1 {
		f.fail("partial_rotary_factor", "%g is not supported, only 1", p)
	}
	if f.has("quantization_config") {
		f.fail("quantization_config", "quantized weights cannot be trained; take the model's unquantized directory")
	}
	types := f.strs("layer_types")
	for i, t := range types {
		if t != "full_attention" {
			f.fail("layer_types", "layer %d is %q; only full_attention is supported", i, t)
		}
	}
	window := f.int("sliding_window", 0, 0, maxPositions)
	first := f.int("max_window_layers", 28, 0, maxPositions)
	if types == nil && window > 0 && f.bool("use_sliding_window", false) && first < c.NumLayers {
		f.fail("use_sliding_window", "attention with a sliding window (%d) is not supported; set it to false to train with full attention", window)
	}
}
