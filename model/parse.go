package model

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"mt/internal/files"
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

// maxConfig bounds the text of a config.json; the longest published ones, which
// list layers one by one, have a hundredth of it.
const maxConfig = 16 << 20

// LoadDir reads dir/config.json, a Hugging Face model directory's. Errors name
// the file and the key.
func LoadDir(dir string) (*Config, error) {
	file := filepath.Join(dir, "config.json")
	raw, err := files.Read(file, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		if why := cmp.Or(Foreign(dir), below(dir)); why != "" {
			return nil, fmt.Errorf("%s: no config.json: %s", dir, why)
		}
		return nil, fmt.Errorf("%s: no such file; a model directory holds config.json and *.safetensors, as save_pretrained writes them", file)
	}
	if err != nil {
		return nil, fmt.Errorf("read model config: %w", err)
	}
	c, err := ParseConfig(raw, file)
	if err == nil {
		err = c.asStored(dir)
	}
	return c, err
}

// ParseConfig reads the text of a config.json in the spelling of Transformers 4
// or 5; file is for messages. The text is kept: JSON gives it back.
func ParseConfig(raw []byte, file string) (*Config, error) {
	src, vals, err := scanObject(raw)
	if err != nil && bytes.HasPrefix(raw, []byte("version https://git-lfs")) {
		err = errors.New("this is a Git LFS pointer, not the file; fetch it with `git lfs pull`")
	}
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
func fromFields(top *fields) (*Config, error) {
	a := findFamily(top)
	if top.err != nil {
		return nil, top.err
	}
	packed := a.packed(top)
	f := a.fields(top)
	if f == nil {
		return nil, top.err
	}
	silent := a.nested != nil && a.nested.headTells && !f.has(tiedKey)
	c := &Config{
		Arch: a.arch, ModelType: a.modelType, family: a,
		VocabSize:        f.need("vocab_size", 1, maxVocab),
		HiddenSize:       f.need("hidden_size", 1, maxHidden),
		IntermediateSize: f.need("intermediate_size", 1, maxFFN),
		NumLayers:        f.need("num_hidden_layers", 1, maxLayers),
		NumHeads:         f.need("num_attention_heads", 1, maxHeads),
		MaxPositions:     f.int("max_position_embeddings", 2048, 1, maxPositions),
		RMSNormEps:       float32(f.float("rms_norm_eps", 1e-6, 0, 1)),
		TieEmbeddings:    f.bool(tiedKey, false),
		InitializerRange: f.float("initializer_range", 0.02, 0, 100),
		MXFP4:            packed,
		headTells:        silent,
	}
	if archs := top.strs("architectures"); len(archs) > 0 && !slices.Contains(archs, a.arch) {
		c.Class = cut(strings.Join(archs, ", "))
	}
	c.headsAndIDs(f)
	c.activation(f)
	c.dropout(f)
	a.refuseOthers(f)
	a.options(c, f)
	if c.NumExperts > 0 && c.NormsOutputs() {
		f.fail("num_experts", "experts whose output is normed are not supported")
	}
	if !c.LearnedPositions {
		c.ropes(f)
		if by := c.attentionFactor(c.Rope, 1); c.QKNormPlain && by != 1 && f.err == nil {
			f.fail("use_qk_norm", "true, and the rotary embedding multiplies by %g what it turns: norms behind it are not supported", by)
		}
	}
	if tied := top.bool(tiedKey, c.TieEmbeddings); tied != c.TieEmbeddings {
		top.fail(tiedKey, "%t, and %t in %s; make them the same", tied, c.TieEmbeddings, a.nested.key)
	}
	if top.err == nil {
		top.err = f.err
	}
	if top.err != nil {
		return nil, top.err
	}
	return c, nil
}

// headsAndIDs reads the keys whose bounds depend on the sizes.
func (c *Config) headsAndIDs(f *fields) {
	c.NumKVHeads = f.int("num_key_value_heads", c.NumHeads, 1, maxHeads)
	c.headDim(f)
	c.BOS = f.ids("bos_token_id", c.VocabSize)
	c.EOS = f.ids("eos_token_id", c.VocabSize)
	c.PAD = f.ids("pad_token_id", c.VocabSize)
	if c.NumHeads%c.NumKVHeads != 0 {
		f.fail("num_attention_heads", "%d is not a multiple of num_key_value_heads, %d", c.NumHeads, c.NumKVHeads)
	}
}

func (c *Config) headDim(f *fields) {
	if !f.has("head_dim") && c.HiddenSize%c.NumHeads != 0 {
		f.fail("hidden_size", "%d is not a multiple of num_attention_heads, %d, and there is no head_dim", c.HiddenSize, c.NumHeads)
	}
	c.HeadDim = f.int("head_dim", max(1, c.HiddenSize/c.NumHeads), 1, maxHeadDim)
	if c.HeadDim%2 != 0 || c.HeadDim > maxHeadDim {
		f.fail("head_dim", "%d must be even and at most %d: rotary embeddings turn pairs of elements", c.HeadDim, maxHeadDim)
	}
}

// activation reads hidden_act. gelu_new and others are the GELU with tanh too, otherwise computed.
func (c *Config) activation(f *fields) {
	def, _ := c.family.defaults["hidden_act"].(string)
	switch act := f.str("hidden_act", cmp.Or(def, "silu")); act {
	case "silu", "swish":
		c.Activation = SiLU
	case "gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh":
		c.Activation = GELUTanh
	case "gelu", "gelu_python":
		c.Activation = GELU
	case "relu":
		c.Activation = ReLU
	default:
		f.fail("hidden_act", "%q is not supported; known: silu, gelu, gelu_pytorch_tanh, relu", act)
	}
}
