package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mt/base/files"
)

// Bounds on the values of a config. They are far above any existing model, and every product of sizes in bytes fits
// into an int64.
const (
	maxVocab     = 1 << 24
	maxHidden    = 1 << 18
	maxFFN       = 1 << 22
	maxLayers    = 10000
	maxHeads     = 4096
	maxHeadDim   = 4096
	maxPositions = 1 << 30
)

// maxConfig bounds the bytes of a config.json. The longest published files, which list settings layer by layer, are a
// hundred times shorter.
const maxConfig = 16 << 20

// LoadDir reads config.json of a Hugging Face model directory. Errors name the file and the key.
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

// ParseConfig reads the text of a config.json in the spelling of Transformers 4 or 5; file is for messages. The Config
// keeps the text, and Config.JSON returns it.
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

// fromFields makes a Config from the keys of a whole config.json.
func fromFields(top *fields) (*Config, error) {
	a := findFamily(top)
	if top.err != nil {
		return nil, top.err
	}
	quantized := top.quantized(a.mxfp4)
	f := a.fields(top)
	if f == nil {
		return nil, top.err
	}
	if a.nested != nil && quantized == nil {
		quantized = f.quantized(a.mxfp4)
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
		Quantized:        quantized,
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
	if c.NormsExperts() && !c.NormsInputs() {
		f.fail("num_experts", "experts whose output is normed, and not their input, are not supported")
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

// headsAndIDs reads the head counts and token ids, whose bounds depend on sizes that were read before.
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

// activation reads hidden_act. gelu_new, gelu_fast and similar names all compute the tanh approximation of GELU, only
// by other operations.
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
	case "relu2", xielu: // only in families that have it by default
		if c.Activation = SquaredReLU; act == xielu {
			c.Activation = XIELU
		}
		if act != def {
			f.fail("hidden_act", "%q is not supported in %s", act, c.Arch)
		}
	default:
		f.fail("hidden_act", "%q is not supported; known: silu, gelu, gelu_pytorch_tanh, relu", act)
	}
}

// fields reads typed values from a mapping that came from JSON or YAML. err keeps the first mistake. After a mistake
// the methods return defaults, so a caller reads everything and checks err once. A null counts as missing.
type fields struct {
	where string // file or key path, for messages
	vals  map[string]any
	// names maps shared key names to the family's own, so that errors show the name in the file. If
	// names is nil, all names are the same.
	names map[string]string
	err   error
}

// renamed moves values from the family's own key names to the shared names; names maps a shared name to the family's.
// If the file also has the shared name, that key means nothing in this family and is dropped. With either it is kept
// where the file lacks the family's own.
func (f *fields) renamed(names map[string]string, either bool) {
	vals := maps.Clone(f.vals)
	for common, own := range names {
		if !either {
			delete(vals, common)
		}
		if v, given := f.vals[own]; given {
			vals[common] = v
			delete(vals, own)
		}
	}
	f.vals, f.names = vals, names
}

func (f *fields) fail(key, format string, args ...any) {
	if f.err == nil {
		key = cmp.Or(f.names[key], key)
		f.err = fmt.Errorf("%s: %s: %s", f.where, key, fmt.Sprintf(format, args...))
	}
}

// setDefaults sets missing keys. A key with the value null is not missing here: it says that there is no value.
func (f *fields) setDefaults(defaults map[string]any) {
	vals := maps.Clone(f.vals)
	for k, v := range defaults {
		if _, given := vals[k]; !given {
			vals[k] = v
		}
	}
	f.vals = vals
}

// has says whether key is there and not null.
func (f *fields) has(key string) bool { return f.vals[key] != nil }

// need returns an integer in [lo, hi]. If the key is missing it sets an error and returns lo.
func (f *fields) need(key string, lo, hi int) int {
	if !f.has(key) {
		f.fail(key, "missing")
		return lo
	}
	return f.int(key, lo, lo, hi)
}

// int returns an integer in [lo, hi]; def if the key is missing. Any other value sets an error.
func (f *fields) int(key string, def, lo, hi int) int {
	if !f.has(key) {
		return def
	}
	x, ok := number(f.vals[key])
	switch {
	case !ok || x != math.Trunc(x):
		f.fail(key, "%s is not a whole number", show(f.vals[key]))
	case x < float64(lo) || x > float64(hi):
		f.fail(key, "%s is out of range: %d to %d are possible", show(f.vals[key]), lo, hi)
	default:
		return int(x)
	}
	return lo
}

// float returns a finite number in [lo, hi]; def if the key is missing. Any other value sets an
// error.
func (f *fields) float(key string, def, lo, hi float64) float64 {
	if !f.has(key) {
		return def
	}
	x, ok := number(f.vals[key])
	switch {
	case !ok:
		f.fail(key, "%s is not a number", show(f.vals[key]))
	case math.IsNaN(x) || x < lo || x > hi:
		f.fail(key, "%s is out of range: %g to %g are possible", show(f.vals[key]), lo, hi)
	default:
		return x
	}
	return def
}

func (f *fields) bool(key string, def bool) bool {
	if !f.has(key) {
		return def
	}
	b, ok := f.vals[key].(bool)
	if !ok {
		f.fail(key, "%s is not true or false", show(f.vals[key]))
	}
	return b
}

func (f *fields) str(key, def string) string {
	if !f.has(key) {
		return def
	}
	s, ok := f.vals[key].(string)
	if !ok {
		f.fail(key, "%s is not a string", show(f.vals[key]))
	}
	return s
}

// strs returns a list of strings; nil if the key is missing.
func (f *fields) strs(key string) []string {
	var out []string
	if !f.has(key) {
		return nil
	}
	list, ok := f.vals[key].([]any)
	if !ok {
		f.fail(key, "%s is not a list", show(f.vals[key]))
	}
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			f.fail(key, "%s is not a string", show(v))
		}
		out = append(out, s)
	}
	return out
}

// ints returns a list of whole numbers from 0 to hi; nil if the key is missing.
func (f *fields) ints(key string, hi int) []int {
	var out []int
	for _, x := range f.floats(key, 0, float64(hi)) {
		if x != math.Trunc(x) {
			f.fail(key, "%g is not a whole number", x)
		}
		out = append(out, int(x))
	}
	return out
}

// floats returns a list of numbers in [lo, hi]; nil if the key is missing.
func (f *fields) floats(key string, lo, hi float64) []float64 {
	if !f.has(key) {
		return nil
	}
	list, ok := f.vals[key].([]any)
	if !ok {
		f.fail(key, "%s is not a list", show(f.vals[key]))
	}
	out := make([]float64, 0, len(list))
	for _, v := range list {
		x, ok := number(v)
		if !ok || math.IsNaN(x) || x < lo || x > hi {
			f.fail(key, "%s is not a number from %g to %g", show(v), lo, hi)
			x = lo
		}
		out = append(out, x)
	}
	return out
}

// ids returns the token ids at key, where the file has one id or a list. Each must be below vocab. -1 stands for no id,
// as in some published models; nil: the key is missing.
func (f *fields) ids(key string, vocab int) []int {
	if !f.has(key) {
		return nil
	}
	list, ok := f.vals[key].([]any)
	if !ok {
		list = []any{f.vals[key]}
	}
	var out []int
	for _, v := range list {
		x, ok := number(v)
		if !ok || x != math.Trunc(x) || x < -1 || x >= float64(vocab) {
			f.fail(key, "%s is not a token id below vocab_size %d", show(v), vocab)
			return nil
		}
		if x >= 0 {
			out = append(out, int(x))
		}
	}
	return out
}

// object returns the mapping at key; nil if the key is missing. Mistakes in the mapping stay in the result's own err,
// which the caller passes on (passUp).
func (f *fields) object(key string) *fields {
	if !f.has(key) {
		return nil
	}
	m, ok := f.vals[key].(map[string]any)
	if !ok {
		f.fail(key, "%s is not a mapping", show(f.vals[key]))
		return nil
	}
	return &fields{where: f.where + ": " + key, vals: m}
}

// known sets an error if the mapping has a key that is not in names, and suggests a similar name.
func (f *fields) known(names []string) {
	keys := make([]string, 0, len(f.vals))
	for k := range f.vals {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if !slices.Contains(names, k) {
			f.fail(k, "unknown key%s", didYouMean(k, names))
		}
	}
}

// number returns v as a float64, which represents every integer of a config exactly; false if v is not a number.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case json.Number:
		f, err := x.Float64()
		return f, err == nil
	case int:
		return float64(x), true
	case int64:
		return float64(x), true
	case uint64:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// show formats a config value for an error message, shortened if it is long.
func show(v any) string {
	s := fmt.Sprint(v)
	if str, ok := v.(string); ok {
		s = strconv.Quote(str)
	}
	return cut(s)
}

// cut shortens a value quoted in an error message to 60 bytes.
func cut(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// didYouMean returns words for an error that suggest the name closest to key among names; "" if none is close.
func didYouMean(key string, names []string) string {
	best, at := 1+len(key)/3, ""
	for _, n := range names {
		if d := distance(key, n); d < best+1 && (at == "" || d < best) {
			best, at = d, n
		}
	}
	if at == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", at)
}

// distance returns the Levenshtein distance of a and b: how many bytes must be inserted, deleted or replaced to make b
// from a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diag
			if a[i] != b[j] {
				d = 1 + min(diag, row[j], row[j+1])
			}
			diag, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// source is the text of a JSON object and the positions of its values in the text. With it a value
// can be replaced without changing any other byte.
type source struct {
	raw  []byte
	keys []sourceKey
}

// sourceKey is one key of a source: its value is raw[start:end].
type sourceKey struct {
	name       string
	start, end int
}

// scanObject reads a JSON object and records the position of every value. A key that appears twice is refused,
// because readers differ in which one counts. Numbers that are not finite are read as Python writes them.
func scanObject(text []byte) (source, map[string]any, error) {
	src := source{raw: text}
	raw := files.ReplaceNonFinite(text, func(word string) string { return standIns[word] })
	vals := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil {
		return src, nil, jsonError(raw, err)
	} else if tok != json.Delim('{') {
		return src, nil, errors.New("not a JSON object")
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return src, nil, jsonError(raw, err)
		}
		name, ok := tok.(string)
		if !ok {
			return src, nil, fmt.Errorf("unexpected %v in place of a key", tok)
		}
		if _, twice := vals[name]; twice {
			return src, nil, fmt.Errorf("%s: appears twice", name)
		}
		var val json.RawMessage
		if err := dec.Decode(&val); err != nil {
			return src, nil, jsonError(raw, err)
		}
		end := int(dec.InputOffset())
		src.keys = append(src.keys, sourceKey{name, end - len(val), end})
		v, err := decodeNumbers(val)
		if err != nil {
			return src, nil, fmt.Errorf("%s: %w", name, err)
		}
		vals[name] = withNonFinite(v)
	}
	if _, err := dec.Token(); err != nil {
		return src, nil, jsonError(raw, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return src, nil, errors.New("text after the closing brace")
	}
	return src, vals, nil
}

// standIns maps Python's words for numbers that are not finite, which JSON does not allow, to strings that replace them
// before parsing. Each string is as long as its word, so positions in the text stay. No other text equals them, because
// no key or value of a config.json contains the byte DEL.
var standIns = map[string]string{"NaN": "\"\x7f\"", "Infinity": "\"\x7f+Inf \"", "-Infinity": "\"\x7f-Inf  \""}

// nonFinite maps the strings of standIns to the numbers that they stand for.
var nonFinite = map[string]float64{"\x7f": math.NaN(), "\x7f+Inf ": math.Inf(1), "\x7f-Inf  ": math.Inf(-1)}

// withNonFinite returns v with numbers in place of the strings of standIns. It also replaces
// mappings such as {"__float__": "Infinity"}, which Transformers 5 writes.
func withNonFinite(v any) any {
	switch x := v.(type) {
	case string:
		if n, ok := nonFinite[x]; ok {
			return n
		}
	case []any:
		for i := range x {
			x[i] = withNonFinite(x[i])
		}
	case map[string]any:
		if word, ok := x["__float__"].(string); ok && len(x) == 1 {
			if n, err := strconv.ParseFloat(word, 64); err == nil {
				return n
			}
		}
		for k := range x {
			x[k] = withNonFinite(x[k])
		}
	}
	return v
}

// decodeNumbers decodes a JSON value and keeps numbers as json.Number.
func decodeNumbers(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// jsonError adds the line number to a syntax error in raw.
func jsonError(raw []byte, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends in the middle of a JSON value")
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		n := min(max(int(syntax.Offset), 0), len(raw))
		return fmt.Errorf("line %d: %w", 1+bytes.Count(raw[:n], []byte("\n")), err)
	}
	return err
}

// with returns the text with the given value for every key of names that it has. If it has none of
// them, the first name and the value are inserted at the front.
func (s source) with(value []byte, names ...string) []byte {
	var out []byte
	from, found := 0, false
	for _, k := range s.keys {
		for _, n := range names {
			if k.name == n {
				out = append(append(out, s.raw[from:k.start]...), value...)
				from, found = k.end, true
			}
		}
	}
	if !found {
		open := bytes.IndexByte(s.raw, '{') + 1
		sep := ","
		if len(s.keys) == 0 {
			sep = ""
		}
		out = append(out, s.raw[:open]...)
		out = fmt.Appendf(out, "\n  %q: %s%s", names[0], value, sep)
		from = open
	}
	return append(out, s.raw[from:]...)
}

// without returns the text s without the key name and its value.
func (s source) without(name string) source {
	i := slices.IndexFunc(s.keys, func(k sourceKey) bool { return k.name == name })
	if i < 0 {
		return s
	}
	from, to := bytes.IndexByte(s.raw, '{')+1, s.keys[i].end
	switch {
	case i > 0: // remove the comma in front too
		from = s.keys[i-1].end
	case len(s.keys) > 1: // remove the comma behind too
		to += bytes.IndexByte(s.raw[to:], ',') + 1
	}
	out, _, err := scanObject(slices.Concat(s.raw[:from], s.raw[to:]))
	if err != nil {
		panic("model: an edited config does not parse: " + err.Error())
	}
	return out
}

// value returns the text of a key's value; nil if the key is missing.
func (s source) value(name string) []byte {
	for _, k := range s.keys {
		if k.name == name {
			return s.raw[k.start:k.end]
		}
	}
	return nil
}

// set returns s with a new value for the key. A key that s lacks is inserted at the front.
func (s source) set(name string, value []byte) source {
	out, _, err := scanObject(s.with(value, name))
	if err != nil {
		panic("model: an edited config does not parse: " + err.Error())
	}
	return out
}
