package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"mt/base/files"
	"mt/checkpoint"
	"mt/checkpoint/gguf"
)

// settings are the keys of a config.json. A multimodal model's config.json has the keys of its
// language model in text_config. In settings these replace outer keys of the same name. The field
// err is the first error of any method. After an error, methods still return usable values, so that
// a caller checks err once at the end.
type settings struct {
	file string
	vals map[string]any
	err  error
}

// readSettings reads dir/config.json.
func readSettings(dir string) (*settings, error) {
	s := &settings{file: filepath.Join(dir, "config.json")}
	v, err := readJSON(s.file)
	if err != nil {
		return nil, err
	}
	var ok bool
	if s.vals, ok = v.(map[string]any); !ok {
		return nil, fmt.Errorf("%s: not a JSON object", s.file)
	}
	if text, ok := s.vals["text_config"].(map[string]any); ok {
		maps.Copy(s.vals, text)
	}
	return s, nil
}

// readJSON reads a whole JSON file. Numbers are returned as json.Number.
func readJSON(file string) (any, error) {
	raw, err := checkpoint.ReadCompanion(file)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(files.JSON(raw)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

// renamed gives keys their common names if the family's config.json names them differently. names
// maps a common name to the family's own name. If a key already has the common name, it means
// nothing in such a file and is dropped.
func (s *settings) renamed(names map[string]string) {
	for common, own := range names {
		delete(s.vals, common)
		if v, given := s.vals[own]; given {
			s.vals[common] = v
		}
	}
}

// defaults adds the keys and values in the map of that the config lacks. A key that is null counts
// as present. rope_parameters is not added if rope_scaling, its older name, is present.
func (s *settings) defaults(of map[string]any) {
	for k, v := range of {
		if _, given := s.vals[k]; !given && (k != "rope_parameters" || s.vals["rope_scaling"] == nil) {
			s.vals[k] = v
		}
	}
}

func (s *settings) fail(key, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%s: %s: %s", s.file, key, fmt.Sprintf(format, args...))
	}
}

// num returns a number, or def if the key is missing or null.
func (s *settings) num(key string, def float64) float64 {
	v, ok := s.vals[key]
	if !ok || v == nil {
		return def
	}
	x, ok := number(v)
	if !ok {
		s.fail(key, "%v is not a number", v)
	}
	return x
}

// int returns an integer from 0 to 2³¹−1, or def if the key is missing or null.
func (s *settings) int(key string, def int) int {
	x := s.num(key, float64(def))
	if x != math.Trunc(x) || x < 0 || x > math.MaxInt32 {
		s.fail(key, "%v is not a whole number from 0 to %d", x, math.MaxInt32)
		return def
	}
	return int(x)
}

// need returns an integer above 0. A key that is missing or 0 is an error.
func (s *settings) need(key string) int {
	n := s.int(key, 0)
	if n == 0 {
		s.fail(key, "missing or 0")
		return 1
	}
	return n
}

func (s *settings) bool(key string, def bool) bool {
	v, ok := s.vals[key]
	if !ok || v == nil {
		return def
	}
	b, ok := v.(bool)
	if !ok {
		s.fail(key, "%v is not true or false", v)
	}
	return b
}

func (s *settings) str(key string) string {
	v, _ := s.vals[key].(string)
	return v
}

func (s *settings) object(key string) map[string]any {
	m, _ := s.vals[key].(map[string]any)
	return m
}

// layerTypes returns the kinds of the layers; nil: the config does not list them.
func (s *settings) layerTypes() []string {
	const key = "layer_types"
	list, _ := s.vals[key].([]any)
	var out []string
	for _, v := range list {
		str, ok := v.(string)
		if !ok {
			s.fail(key, "%v is not a string", v)
		}
		out = append(out, str)
	}
	return out
}

// id returns the token id in key, or the first if key has a list of ids; -1: none.
func (s *settings) id(key string) int {
	v := s.vals[key]
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	x, ok := number(v)
	if !ok || x != math.Trunc(x) || x < 0 || x > math.MaxInt32 {
		return -1
	}
	return int(x)
}

func number(v any) (float64, bool) {
	switch x := v.(type) {
	case json.Number:
		f, err := x.Float64()
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	case float64:
		return x, true
	case int:
		return float64(x), true
	}
	return 0, false
}

// rope holds the settings of the rotary embedding in config.json, from the keys of Transformers 5 or 4 (see
// readRope).
type rope struct {
	kind   string
	theta  float64
	local  float64   // base of layers with a sliding window; 0: the same base
	params *settings // parameters of the scaling
}

// readRope reads rope_parameters of Transformers 5, which may differ by layer type. For Transformers 4 it reads
// rope_theta, rope_local_base_freq and rope_scaling.
func (s *settings) readRope() rope {
	all := s.object("rope_parameters")
	if all == nil {
		all = s.object("rope_scaling")
	}
	theta, local := s.num("rope_theta", 10000), s.num("rope_local_base_freq", 0)
	if full, ok := all["full_attention"].(map[string]any); ok {
		if sliding, ok := all["sliding_attention"].(map[string]any); ok {
			local = (&settings{file: s.file, vals: sliding}).num("rope_theta", local)
		}
		all = full
	}
	params := &settings{file: s.file + ": rope_parameters", vals: all}
	r := rope{kind: params.str("rope_type"), theta: params.num("rope_theta", theta), local: local, params: params}
	if r.kind == "" {
		r.kind = params.str("type")
	}
	if r.kind == "" {
		r.kind = "default"
	}
	if s.err == nil {
		s.err = params.err
	}
	return r
}

// original returns the context length of training before the rotary embedding was scaled. As in Transformers, the
// key of config.json itself has precedence over the same key in rope_parameters.
func (p *plan) original() int {
	const key = "original_max_position_embeddings"
	return p.s.int(key, p.rope.params.int(key, p.s.int("max_position_embeddings", 2048)))
}

// ropeKeys sets GGUF's keys for the rotary base and the rotary scaling.
func (p *plan) ropeKeys() {
	r := p.rope
	if alpha, d := r.params.num("alpha", 0), float64(p.headDim); p.family.ropeAlpha && r.kind == "dynamic" && alpha > 0 {
		r.kind, r.theta = "default", r.theta*math.Pow(alpha, d/(d-2))
	}
	p.add("rope.freq_base", float32(r.theta))
	if r.local > 0 {
		p.add("rope.freq_base_swa", float32(r.local))
	}
	switch r.kind {
	case "default", "llama3": // llama3: see ropeFreqs
	case "linear":
		p.add("rope.scaling.type", "linear")
		p.add("rope.scaling.factor", float32(r.params.num("factor", 1)))
	case "yarn":
		p.yarn()
	case "longrope": // see longRope
		p.add("rope.scaling.type", "longrope")
	case "dynamic":
		p.note("llama.cpp does not scale rotary embeddings by length (rope type dynamic): results are the same up to " +
			itoa(p.original()) + " tokens")
	default:
		p.s.fail("rope_type", "%q cannot be written as GGUF", r.kind)
	}
	if p.s.err == nil {
		p.s.err = r.params.err
	}
}

// yarn sets the keys of yarn scaling. llama.cpp multiplies the file's attention factor by a factor of its own, 1 +
// ln(factor)/10. So the file gets the model's factor divided by this one. llama.cpp always uses beta_fast 32 and
// beta_slow 1; other values are an error.
func (p *plan) yarn() {
	y := p.rope.params
	factor := y.num("factor", 1)
	p.add("rope.scaling.type", "yarn")
	p.add("rope.scaling.factor", float32(factor))
	p.add("rope.scaling.original_context_length", uint32(p.original()))
	scale := func(m float64) float64 { return 1 + m*math.Log(max(factor, 1))/10 }
	own, m, all := y.num("attention_factor", 0), y.num("mscale", 0), y.num("mscale_all_dim", 0)
	switch {
	case p.family.mla && own == 0:
		p.mlaYarn(m, all)
	case own == 0 && m != 0 && all != 0:
		own = scale(m) / scale(all)
	}
	if own > 0 {
		p.add("rope.scaling.attn_factor", float32(own/scale(1)))
	}
	switch {
	case y.bool("truncate", true):
	case p.family.rounds:
		p.note("llama.cpp rounds where yarn's ramp begins and ends, which this model does not (truncate: false): results differ a little")
	default:
		p.s.fail("truncate", "is false, which cannot be written as GGUF")
	}
	for _, beta := range []struct {
		key    string
		always float64
	}{{"beta_fast", 32}, {"beta_slow", 1}} {
		if v := y.num(beta.key, beta.always); v != beta.always {
			p.s.fail(beta.key, "%g, but llama.cpp takes it to be %g: the model would be another", v, beta.always)
		}
	}
}

// ropeDims sets the key for the number of rotary elements per head.
func (p *plan) ropeDims() { p.add("rope.dimension_count", uint32(p.rotary())) }

// rotary returns the number of rotary elements per head: head_dim times partial_rotary_factor.
func (p *plan) rotary() int {
	part := p.rope.params.num("partial_rotary_factor", p.s.num("partial_rotary_factor", 1))
	return int(part * float64(p.headDim))
}

// noFreqs returns an error for the rope type llama3, for architectures in which llama.cpp does not
// read ropeFreqs. The type needs this tensor of frequency divisors.
func (p *plan) noFreqs() { noRopes("llama3")(p) }

// noRopes returns a function that refuses rope types that llama.cpp does not compute in the architecture.
func noRopes(types ...string) func(*plan) {
	return func(p *plan) {
		if slices.Contains(types, p.rope.kind) {
			p.s.fail("rope_type", "%s cannot be written as GGUF: llama.cpp's %s does not know it", p.rope.kind, p.family.arch)
		}
	}
}

// ropeFreqs adds the tensor of factors by which llama.cpp divides the rotary frequencies, for rope type llama3.
// Source: transformers.modeling_rope_utils, _compute_llama3_parameters.
func (p *plan) ropeFreqs() {
	if p.rope.kind != "llama3" {
		return
	}
	y := p.rope.params
	factor, low, high := y.num("factor", 8), y.num("low_freq_factor", 1), y.num("high_freq_factor", 4)
	old := float64(p.original())
	if low >= high || low <= 0 || factor <= 0 {
		p.s.fail("rope_parameters", "factor %g from %g to %g makes no sense", factor, low, high)
		return
	}
	out := make([]float32, p.rotary()/2)
	for i := range out {
		wavelen := 2 * math.Pi * math.Pow(p.rope.theta, float64(2*i)/float64(p.rotary()))
		switch {
		case wavelen < old/high:
			out[i] = 1
		case wavelen > old/low:
			out[i] = float32(factor)
		default:
			smooth := (old/wavelen - low) / (high - low)
			out[i] = float32(1 / ((1-smooth)/factor + smooth))
		}
	}
	p.vector("rope_freqs.weight", out)
}

// longRope adds the two tensors of frequency divisors of rope type longrope (Phi-3), for short and for long
// contexts.
func (p *plan) longRope() {
	p.add("rope.scaling.original_context_length", uint32(p.original()))
	if p.rope.kind != "longrope" {
		return
	}
	original := float64(p.original())
	factor := p.rope.params.num("factor", float64(p.s.int("max_position_embeddings", 2048))/original)
	scale := p.rope.params.num("attention_factor", 0)
	if scale == 0 {
		scale = 1
		if factor > 1 {
			scale = math.Sqrt(1 + math.Log(factor)/math.Log(original))
		}
	}
	p.add("rope.scaling.attn_factor", float32(scale))
	for _, which := range []string{"long", "short"} {
		list, _ := p.rope.params.vals[which+"_factor"].([]any)
		if len(list) != p.rotary()/2 {
			p.s.fail(which+"_factor", "%d numbers; %d are needed", len(list), p.rotary()/2)
			return
		}
		out := make([]float32, len(list))
		for i, v := range list {
			x, ok := number(v)
			if !ok {
				p.s.fail(which+"_factor", "%v is not a number", v)
			}
			out[i] = float32(x)
		}
		p.vector("rope_factors_"+which+".weight", out)
	}
}

// vector adds a one-dimensional fp32 tensor whose values are computed here, not read from the directory.
func (p *plan) vector(name string, values []float32) {
	p.items = append(p.items, item{Tensor: gguf.Tensor{Name: name, Type: gguf.F32, Shape: []int64{int64(len(values))}}, values: values})
}

func itoa(n int) string { return strconv.Itoa(n) }
