package model

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"mt/base/files"
)

// quantizedKey is the key of config.json for the mapping that describes quantized weights.
const quantizedKey = "quantization_config"

// Quantized describes the quantized weights of a directory, from quantization_config of
// config.json. The tensors' shapes and dtypes say the rest: which modules are quantized, and
// whether a scale covers a block, a row or a tensor.
type Quantized struct {
	Method string // quant_method: "fp8", "compressed-tensors" or "mxfp4"
	// BlockRows and BlockCols are the rows and columns of a block of fp8 weights that shares a
	// scale; 0: the method has no blocks. If config.json does not give them, they are 128.
	BlockRows, BlockCols int
	PowersOfTwo          bool // scales of fp8 are powers of two (scale_fmt: ue8m0)
	StaticActivations    bool // scales of activations are stored too (activation_scheme: static)
}

// defaultBlock is the number of rows, and of columns, of a block in fp8 if config.json has no weight_block_size.
const defaultBlock = 128

// ReadQuantized reads quantization_config of dir/config.json, at the top or in the language model's mapping; nil: there is
// none, or no config.json.
func ReadQuantized(dir string) (*Quantized, error) {
	file := filepath.Join(dir, "config.json")
	raw, err := files.Read(file, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, vals, err := scanObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	f := &fields{where: file, vals: vals}
	if text, ok := vals["text_config"].(map[string]any); ok && !f.has(quantizedKey) {
		f = &fields{where: file + ": text_config", vals: text}
	}
	q := f.quantized(true)
	return q, f.err
}

// quantized reads quantization_config from f; nil: there is none. A format that mt does not read is
// an error. mxfp4 says whether the family accepts MXFP4.
func (f *fields) quantized(mxfp4 bool) *Quantized {
	if !f.has(quantizedKey) {
		return nil
	}
	o := f.object(quantizedKey)
	if o == nil {
		return nil
	}
	q := &Quantized{Method: o.str("quant_method", "")}
	switch {
	case q.Method == "fp8":
		q.fp8(o)
	case q.Method == "compressed-tensors":
		q.compressed(o)
	case q.Method == "mxfp4" && mxfp4:
	case q.Method == "mxfp4":
		o.fail("quant_method", `"mxfp4" is read for experts of gpt_oss only; take the model's unquantized directory`)
	default:
		o.fail("quant_method", "%s", unread(q.Method))
	}
	if f.err == nil {
		f.err = o.err
	}
	return q
}

// unquantized is advice in errors about quantized weights that mt does not read.
const unquantized = "take the directory that it was made from"

// packings describes the formats that mt does not read, by quant_method. The first text says how
// weights are stored. The second is advice that follows the constant unquantized; "": none.
var packings = map[string][2]string{
	"gptq":         {"weights are integers of 2 to 8 bits, packed by GPTQ", ""},
	"awq":          {"weights are integers of 4 bits, packed by AWQ", ""},
	"bitsandbytes": {"weights are codes of 4 or 8 bits", ", or load it in Transformers, call model.dequantize() and save_pretrained()"},
	"modelopt":     {"weights are quantized by ModelOpt (FP8 or NVFP4)", ""},
	"fbgemm_fp8":   {"weights are quantized by FBGEMM", ", or save it unquantized from Transformers"},
	"torchao":      {"weights are tensors of TorchAO", ", or save it unquantized from Transformers"},
}

// unread returns an error's text for weights quantized by a method that mt does not read: why, and
// what to do.
func unread(method string) string {
	how, ok := packings[method]
	if !ok {
		how[0] = "mt does not know this format"
	}
	return fmt.Sprintf("quantized weights of %q are not read, only fp8 (E4M3) and mxfp4: %s; %s%s", method, how[0], unquantized, how[1])
}

// fp8 reads the keys of quant_method fp8 (transformers.FineGrainedFP8Config).
func (q *Quantized) fp8(o *fields) {
	switch format := o.str("fmt", "e4m3"); format {
	case "e4m3", "e4m3fn", "float8_e4m3fn":
	default:
		o.fail("fmt", "quantized weights in %q are not read, only E4M3: E5M2 keeps 2 bits of each fraction; %s", format, unquantized)
	}
	if t := o.str("expert_dtype", "fp8"); t != "fp8" {
		o.fail("expert_dtype", "%q: experts packed in 4 bits are read as mxfp4 of gpt_oss only; %s", t, unquantized)
	}
	q.BlockRows, q.BlockCols = defaultBlock, defaultBlock
	if size, given := o.vals["weight_block_size"]; given && size == nil {
		q.BlockRows, q.BlockCols = 0, 0
	} else if given {
		q.block(o, "weight_block_size")
	}
	switch scheme := o.str("activation_scheme", "dynamic"); scheme {
	case "dynamic", "static":
		q.StaticActivations = scheme == "static"
	default:
		o.fail("activation_scheme", "%q is neither dynamic nor static", scheme)
	}
	switch scale := o.str("scale_fmt", "float"); scale {
	case "float", "ue8m0":
		q.PowersOfTwo = scale == "ue8m0"
	default:
		o.fail("scale_fmt", "%q is neither float nor ue8m0", scale)
	}
	for _, key := range []string{"modules_to_not_convert", "ignored_layers"} {
		o.strs(key) // the dtype of each tensor says whether it is excluded
	}
}

// block reads the list at key: the rows and columns of a block of weights that shares one scale.
func (q *Quantized) block(o *fields, key string) {
	size := o.ints(key, maxFFN)
	if len(size) != 2 || size[0] == 0 || size[1] == 0 {
		o.fail(key, "%s is not a number of rows and a number of columns", show(o.vals[key]))
		return
	}
	q.BlockRows, q.BlockCols = size[0], size[1]
}

// compressed reads the keys of quant_method compressed-tensors: every group's weights must be float-quantized, 8 bits.
func (q *Quantized) compressed(o *fields) {
	const way = ", or load it in Transformers with CompressedTensorsConfig(dequantize=True) and save it"
	format := o.str("format", "float-quantized")
	groups := o.object("config_groups")
	if groups == nil {
		o.fail("config_groups", "missing")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(groups.vals)) {
		g := groups.object(name)
		if g == nil {
			break
		}
		if of := g.str("format", format); !slices.Contains([]string{"float-quantized", "naive-quantized"}, of) {
			g.fail("format", "quantized weights in %q are not read, only float-quantized (E4M3); %s%s", of, unquantized, way)
		}
		groups.passUp(g)
		if w := g.object("weights"); w != nil {
			if t, bits := w.str("type", "int"), w.int("num_bits", 8, 1, 64); t != "float" || bits != 8 {
				w.fail("type", "quantized weights of type %s with %d bits are not read, only float with 8 bits (E4M3); %s%s", t, bits, unquantized, way)
			}
			switch strategy := w.str("strategy", "tensor"); strategy {
			case "tensor", "channel":
			case "block":
				q.block(w, "block_structure")
			default:
				w.fail("strategy", "%q is not read, only tensor, channel and block; %s%s", strategy, unquantized, way)
			}
			groups.passUp(w)
		}
		if a := g.object("input_activations"); a != nil {
			q.StaticActivations = q.StaticActivations || !a.bool("dynamic", false)
			groups.passUp(a)
		}
		groups.passUp(g)
	}
	o.passUp(groups)
}

// passUp copies in.err to f.err unless f has an error already. `in` is a mapping inside f.
func (f *fields) passUp(in *fields) {
	if f.err == nil {
		f.err = in.err
	}
}

// withoutQuantized returns s without quantization_config, both at the top and in the mapping named nested; nested "":
// there is no such mapping.
func (s source) withoutQuantized(nested string) source {
	s = s.without(quantizedKey)
	if nested == "" {
		return s
	}
	if inner, _, err := scanObject(s.value(nested)); err == nil && inner.value(quantizedKey) != nil {
		s = s.set(nested, inner.without(quantizedKey).raw)
	}
	return s
}
