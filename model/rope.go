package model

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"
)

// Rope describes a rotary embedding (arXiv:2104.09864) with the parameters of
// transformers.modeling_rope_utils. Parameters that the type does not use are 0.
type Rope struct {
	Type    string // "default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"
	Theta   float64
	Partial float64 // share of a head's elements that are rotated; 0: all
	Dim     int     // width of the heads; 0: the model's

	Factor               float64 // all types but default. longrope derives its attention factor from it; 0: from MaxPositions/OriginalMaxPositions
	OriginalMaxPositions int     // llama3, yarn, longrope
	LowFreqFactor        float64 // llama3
	HighFreqFactor       float64 // llama3
	AttentionFactor      float64 // yarn, longrope: factor on cos and sin; 0: derived from Factor by the type's rule
	BetaFast, BetaSlow   float64 // yarn; 0: 32 and 1
	MScale, MScaleAllDim float64 // yarn; 0: none
	NoTruncate           bool    // yarn: the ramp's ends are not rounded to whole indices
	Alpha                float64 // ntkAlpha: the base is Theta·Alpha^(d/(d−2)) for d rotated elements
	ShortFactor          []float64
	ShortMScale          float64   // longrope: factor on cos and sin of documents with short factors; 0: as AttentionFactor
	LongMScale           float64   // longrope: the same for documents with long factors
	LongFactor           []float64 // longrope: one per rotated pair, as ShortFactor
}

var ropeTypes = []string{"default", "linear", "dynamic", "yarn", "longrope", "llama3", proportional}

// proportional is the rope type of Gemma 4. The frequencies are those of a rotation of the whole head, but only the
// first Partial of the pairs are rotated; the other pairs have frequency 0.
const proportional = "proportional"

// ntkAlpha is mt's name for rope type dynamic with an alpha, as Hunyuan's class computes it. The
// base is raised by Rope.Alpha and, unlike dynamic's, does not depend on the document's length.
const ntkAlpha = "ntk_alpha"

var ropeKeys = []string{"rope_type", "type", "rope_theta", "factor", "alpha", "low_freq_factor", "high_freq_factor",
	"original_max_position_embeddings", "partial_rotary_factor", "attention_factor", "beta_fast", "beta_slow", "mscale",
	"mscale_all_dim", "truncate", "short_factor", "long_factor", "short_mscale", "long_mscale", queryScalingKey}

const (
	defaultTheta       = 10000
	minTheta, maxTheta = 1e-3, 1e15
	maxFactor          = 1e6
)

// ropes reads the rotary embeddings: rope_theta with rope_scaling (Transformers 4), or rope_parameters (Transformers
// 5), which is one mapping, or one for each type of layer. If both spellings are there, they must agree; an empty
// rope_scaling is ignored.
func (c *Config) ropes(f *fields) {
	v4, v5 := f.object("rope_scaling"), f.object("rope_parameters")
	if v4 != nil && v5 != nil && len(v4.vals) == 0 {
		v4 = nil
	}
	theta := f.float("rope_theta", defaultTheta, minTheta, maxTheta)
	var full, local Rope
	if v4 != nil || v5 == nil {
		full, local = c.ropes4(f, v4, theta)
	}
	if v5 != nil {
		full5, local5 := c.ropes5(f, v5, theta)
		if v4 != nil && !(reflect.DeepEqual(full, full5) && reflect.DeepEqual(local, local5)) {
			f.fail("rope_parameters", "says otherwise than rope_scaling; remove one of them")
		}
		if _, given := c.family.defaults["rope_theta"]; f.has("rope_theta") && !given && full5.Theta != theta {
			f.fail("rope_parameters", "rope_theta is %g there and %g at the top level; remove one of them", full5.Theta, theta)
		}
		full, local = full5, local5
	}
	full.Dim = c.GlobalHeadDim
	c.Rope = full
	if !reflect.DeepEqual(full, local) && c.SlidingWindow > 0 {
		c.LocalRope = &local
		if c.Sliding == nil { // every block has a sliding window
			c.Rope, c.LocalRope = local, nil
		}
	}
}

// ropes4 reads the spelling of Transformers 4: rope_theta and the mapping scaling. Result full is
// the rotary embedding of blocks with full attention, and local is for blocks with a sliding
// window.
func (c *Config) ropes4(f, scaling *fields, theta float64) (full, local Rope) {
	if scaling == nil {
		scaling = &fields{where: f.where}
	}
	full = c.oneRope(f, scaling, theta, false)
	if c.family.localTheta == 0 {
		return full, full
	}
	return full, Rope{Type: "default", Theta: f.float("rope_local_base_freq", c.family.localTheta, minTheta, maxTheta)}
}

// ropes5 reads the spelling of Transformers 5: o is the mapping rope_parameters. Result full is the
// rotary embedding of blocks with full attention, and local is for blocks with a sliding window.
func (c *Config) ropes5(f, o *fields, theta float64) (full, local Rope) {
	nested := o.has(fullAttention) || o.has(slidingAttention)
	if !nested && c.family.localTheta > 0 {
		o.fail("rope_type", "this architecture has one embedding for %s and one for %s here", fullAttention, slidingAttention)
	}
	localTheta := theta
	if c.family.localTheta > 0 {
		localTheta = f.float("rope_local_base_freq", c.family.localTheta, minTheta, maxTheta)
	}
	if nested {
		one := func(key string, theta float64) Rope {
			in := o.object(key)
			if in == nil {
				in = &fields{where: o.where, vals: map[string]any{}}
			}
			return c.oneRope(f, in, theta, true)
		}
		full, local = one(fullAttention, theta), one(slidingAttention, localTheta)
	} else {
		full = c.oneRope(f, o, theta, false)
		local = full
	}
	if f.err == nil {
		f.err = o.err
	}
	return full, local
}

// oneRope reads one mapping o in either spelling; f has the config's own keys and gets the mapping's errors. Keys at
// the top of the config count as in Transformers.
//   - theta and partial_rotary_factor are defaults for keys that o lacks.
//   - original_max_position_embeddings takes precedence over o's key, unless nested: o is for one type of layer.
func (c *Config) oneRope(f, o *fields, theta float64, nested bool) Rope {
	r := Rope{Type: o.str("rope_type", o.str("type", "default")), Theta: o.float("rope_theta", theta, minTheta, maxTheta)}
	if other := c.family.ropeTypes[r.Type]; other != "" {
		r.Type = other
	}
	if a := o.float("alpha", 0, 0, 1e9); c.family.ropeAlpha && r.Type == "dynamic" && a > 0 {
		r.Type, r.Alpha = ntkAlpha, a
	}
	if r.Type == proportional {
		r.Partial = share(o.float("partial_rotary_factor", 1, 0, 1))
	} else {
		c.partial(f, o, &r)
	}
	outer := f
	if nested {
		outer = o
	}
	switch r.Type {
	case "default", ntkAlpha:
	case proportional:
		r.Factor = o.float("factor", 0, 1e-6, maxFactor)
	case "linear", "dynamic":
		o.require(r.Type, "factor")
		r.Factor = o.float("factor", 1, 1e-6, maxFactor)
	case "llama3":
		r.llama3Fields(o)
		r.OriginalMaxPositions = originalPositions(outer, o, c.MaxPositions)
	case "yarn":
		c.yarnFields(o, &r)
		r.OriginalMaxPositions = originalPositions(outer, o, c.MaxPositions)
	case "longrope":
		r.OriginalMaxPositions = originalPositions(outer, o, c.MaxPositions)
		c.longropeFields(o, &r)
	default:
		o.fail("rope_type", "%q is not supported; known: %s", r.Type, strings.Join(ropeTypes, ", "))
	}
	if n := c.rotary(r); (r.Type == "dynamic" || r.Type == ntkAlpha) && n <= 2 {
		o.fail("rope_type", "dynamic needs more than %d elements that turn", n)
	}
	if f.err == nil {
		f.err = o.err
	}
	return r
}

// require sets an error if the mapping lacks one of keys, which rope type t needs.
func (f *fields) require(t string, keys ...string) {
	for _, k := range keys {
		if !f.has(k) {
			f.fail(k, "missing; rope type %s needs it", t)
		}
	}
}

// share converts partial_rotary_factor p to the form of Rope.Partial, in which 0 stands for all
// elements.
func share(p float64) float64 {
	if p == 1 {
		return 0
	}
	return p
}

// partial reads partial_rotary_factor into r.Partial: from the rope mapping o or, if it has none, from the top of the
// config, f.
func (c *Config) partial(f, o *fields, r *Rope) {
	p := o.float("partial_rotary_factor", f.float("partial_rotary_factor", 1, 0, 1), 0, 1)
	if p != 1 && !c.family.partial {
		o.fail("partial_rotary_factor", "%g is not supported, only 1", p)
	}
	r.Partial = share(p)
	if n := int(float64(c.turning()) * p); n < 2 || n%2 != 0 {
		o.fail("partial_rotary_factor", "%g turns %d of a head's %d elements: it must be an even number of them", p, n, c.turning())
		r.Partial = 0
	}
}

func (r *Rope) llama3Fields(o *fields) {
	o.require(r.Type, "factor", "low_freq_factor", "high_freq_factor")
	r.Factor = o.float("factor", 1, 1, maxFactor)
	r.LowFreqFactor = o.float("low_freq_factor", 1, 1e-6, maxFactor)
	r.HighFreqFactor = o.float("high_freq_factor", 2, 1e-6, maxFactor)
	if r.HighFreqFactor <= r.LowFreqFactor {
		o.fail("high_freq_factor", "%g must be above low_freq_factor, %g", r.HighFreqFactor, r.LowFreqFactor)
	}
}

func (c *Config) yarnFields(o *fields, r *Rope) {
	o.require(r.Type, "factor")
	r.Factor = o.float("factor", 1, 1e-6, maxFactor)
	r.AttentionFactor = o.float("attention_factor", 0, 0, maxFactor)
	r.BetaFast, r.BetaSlow = o.float("beta_fast", 0, 0, maxFactor), o.float("beta_slow", 0, 0, maxFactor)
	r.MScale, r.MScaleAllDim = o.float("mscale", 0, 0, maxFactor), o.float("mscale_all_dim", 0, 0, maxFactor)
	r.NoTruncate = !o.bool("truncate", true)
	if r.Theta <= 1 {
		o.fail("rope_theta", "%g: rope type yarn needs more than 1", r.Theta)
	}
}

// originalPositions returns original_max_position_embeddings. f has the keys at the top of the config and o those of
// the rope mapping. As in Transformers, the key in f takes precedence. If both are missing it returns def; with def 0
// that is an error.
func originalPositions(f, o *fields, def int) int {
	const key = "original_max_position_embeddings"
	if f.has(key) {
		return f.int(key, 2, 2, maxPositions)
	}
	if def == 0 {
		return o.need(key, 2, maxPositions)
	}
	return o.int(key, max(2, def), 2, maxPositions)
}

func (c *Config) longropeFields(o *fields, r *Rope) {
	o.require(r.Type, "short_factor", "long_factor")
	r.Factor = o.float("factor", 0, 1e-6, maxFactor)
	r.AttentionFactor = o.float("attention_factor", 0, 0, maxFactor)
	r.ShortFactor, r.LongFactor = o.floats("short_factor", 1e-6, maxFactor), o.floats("long_factor", 1e-6, maxFactor)
	if c.family.mscales {
		o.require(r.Type, "short_mscale", "long_mscale")
		r.ShortMScale, r.LongMScale = o.float("short_mscale", 1, 1e-6, maxFactor), o.float("long_mscale", 1, 1e-6, maxFactor)
	}
	n := c.rotary(*r) / 2
	if len(r.ShortFactor) != n {
		o.fail("short_factor", "%d numbers for %d pairs of elements that turn", len(r.ShortFactor), n)
	}
	if len(r.LongFactor) != n {
		o.fail("long_factor", "%d numbers for %d pairs of elements that turn", len(r.LongFactor), n)
	}
}

// rotary returns how many elements of a head rotary embedding r rotates; a head's other elements
// are left as they are.
func (c *Config) rotary(r Rope) int {
	dim := cmp.Or(r.Dim, c.turning())
	if r.Partial == 0 || r.Type == proportional {
		return dim
	}
	return int(float64(dim) * r.Partial)
}

// Ropes returns the model's rotary embeddings, none with learned positions. RopeOf says which one a block has.
func (c *Config) Ropes() []Rope {
	if c.LearnedPositions {
		return nil
	}
	if c.LocalRope == nil {
		return []Rope{c.Rope}
	}
	return []Rope{c.Rope, *c.LocalRope}
}

// RopeOf returns the index in Ropes of a block's rotary embedding.
func (c *Config) RopeOf(block int) int {
	if c.LocalRope != nil && c.Window(block) > 0 {
		return 1
	}
	return 0
}

// Rotary returns how many elements of a head Ropes()[rope] rotates. They begin at RopeAt.
func (c *Config) Rotary(rope int) int { return c.rotary(c.Ropes()[rope]) }

// ropeBounds returns, in rising order, the document lengths in tokens beyond which the frequencies change: longrope's
// original length and, for dynamic, max_position_embeddings.
func (c *Config) ropeBounds() []int {
	var out []int
	for _, r := range c.Ropes() {
		switch r.Type {
		case "longrope":
			out = append(out, r.OriginalMaxPositions)
		case "dynamic":
			out = append(out, c.MaxPositions)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// RopeShift returns the row of RopeTables at which a document of length tokens begins: position p has row
// RopeShift(length) + p. It is 0 unless frequencies depend on the length.
func (c *Config) RopeShift(length int) int {
	shift := 0
	for _, b := range c.ropeBounds() {
		if length > b {
			shift += b
		}
	}
	return shift
}

// RopeRows returns the number of rows of each table, for documents of at most maxPos tokens.
func (c *Config) RopeRows(maxPos int) int { return c.RopeShift(maxPos) + maxPos }

// RopeElems returns the number of elements of RopeTables' cos, and of its sin, for documents of at most maxPos tokens.
func (c *Config) RopeElems(maxPos int) int64 {
	n := c.QueryScalingElems(maxPos) + int64(c.Ones())
	for _, r := range c.Ropes() {
		n += int64(c.RopeRows(maxPos)) * int64(c.rotary(r)/2)
	}
	return n
}

// Ones returns how many ones end RopeTables' cos. Norms without trained weights, of heads and of
// the embedding, use the ones as weights. 0: there are no such norms.
func (c *Config) Ones() int {
	n := 0
	if c.QKNormPlain || c.NormsValues {
		n = max(c.HeadDim, c.GlobalHeadDim)
	}
	if c.EmbedNorm {
		n = max(n, c.HiddenSize)
	}
	return n
}

// QueryScalingElems returns the number of elements of QueryScaling's table in RopeTables; 0: no scaling.
func (c *Config) QueryScalingElems(maxPos int) int64 {
	if c.QueryScaling == nil {
		return 0
	}
	return int64(c.RopeRows(maxPos)) * int64(c.HeadDim/2)
}

// ropeJSON writes the rotary embeddings to m, the keys of a config.json, in the spellings of
// Transformers 4 and 5.
func (c *Config) ropeJSON(m map[string]any) {
	m["rope_theta"], m["rope_scaling"] = float(c.Rope.Theta), nil
	if c.Rope.Partial != 0 {
		m["partial_rotary_factor"] = float(c.Rope.Partial)
	}
	if c.Rope.Type != "default" {
		m["rope_scaling"] = c.Rope.json()
	}
	five := c.Rope.parameters()
	m["rope_parameters"] = five
	if a := c.familyOf(); a == nil || a.localTheta == 0 {
		return
	}
	local := c.Rope
	if c.LocalRope != nil {
		local = *c.LocalRope
	}
	m["rope_local_base_freq"] = float(local.Theta)
	m["rope_parameters"] = map[string]any{fullAttention: five, slidingAttention: local.parameters()}
}

// parameters returns the mapping that describes r in rope_parameters, the spelling of Transformers
// 5.
func (r Rope) parameters() map[string]any {
	m := r.json()
	m["rope_theta"] = float(r.Theta)
	return m
}

// json returns the mapping that describes r in config.json, without the base rope_theta, which Transformers 4 keeps
// outside of the mapping.
func (r Rope) json() map[string]any {
	m := map[string]any{"rope_type": r.Type}
	for key, x := range map[string]float64{"factor": r.Factor, "low_freq_factor": r.LowFreqFactor, "high_freq_factor": r.HighFreqFactor,
		"attention_factor": r.AttentionFactor, "beta_fast": r.BetaFast, "beta_slow": r.BetaSlow, "mscale": r.MScale,
		"mscale_all_dim": r.MScaleAllDim, "short_mscale": r.ShortMScale, "long_mscale": r.LongMScale, "partial_rotary_factor": r.Partial} {
		if x != 0 {
			m[key] = float(x)
		}
	}
	if r.OriginalMaxPositions != 0 {
		m["original_max_position_embeddings"] = r.OriginalMaxPositions
	}
	if r.NoTruncate {
		m["truncate"] = false
	}
	if r.Type == ntkAlpha {
		m["rope_type"], m["factor"], m["alpha"] = "dynamic", float(1), float(r.Alpha)
	}
	if r.ShortFactor != nil {
		m["short_factor"], m["long_factor"] = floatList(r.ShortFactor), floatList(r.LongFactor)
	}
	return m
}

func floatList(xs []float64) []float {
	out := make([]float, len(xs))
	for i, x := range xs {
		out[i] = float(x)
	}
	return out
}

// RopeTables returns cos and sin of position·frequency times the attention factor, for documents of at most maxPos
// tokens. There is one row-major table (RopeRows, Rotary/2) per entry of Ropes, one after the other. If frequencies
// depend on a document's length, a table has one section per range of lengths, which begins at RopeShift. The angle is
// rounded to float32, as in Transformers.
//
// With QueryScaling another table (RopeRows, HeadDim/2) follows: its cos is the factor and its sin 0, so the factor is
// applied as a rotation. The last Ones elements of cos are ones.
func (c *Config) RopeTables(maxPos int) (cos, sin []float32) {
	n := c.RopeElems(maxPos)
	cos, sin = make([]float32, 0, n), make([]float32, 0, n)
	for _, r := range c.Ropes() {
		for _, length := range c.ropeSections(maxPos) {
			factor := float32(c.attentionFactor(r, length))
			freq := c.frequencies(r, length)
			for p := range length {
				for _, f := range freq {
					s, c := math.Sincos(float64(float32(p) * f))
					cos, sin = append(cos, float32(c)*factor), append(sin, float32(s)*factor)
				}
			}
		}
	}
	if c.QueryScaling != nil {
		for _, length := range c.ropeSections(maxPos) {
			for p := range length {
				cos = append(cos, slices.Repeat([]float32{float32(c.QueryScaling.At(p))}, c.HeadDim/2)...)
			}
		}
	}
	cos = append(cos, slices.Repeat([]float32{1}, c.Ones())...)
	return cos, append(sin, make([]float32, len(cos)-len(sin))...)
}

// ropeSections returns the longest document of each section of a table, in rising order. A document
// uses the first section that is long enough.
func (c *Config) ropeSections(maxPos int) []int {
	var out []int
	for _, b := range c.ropeBounds() {
		if b < maxPos {
			out = append(out, b)
		}
	}
	return append(out, maxPos)
}

// frequencies returns the inverse frequencies of r for documents of length tokens. It rounds to
// float32 at the same points as Transformers. For rope type dynamic, length is the longest document
// of the section, while Transformers takes the longest document so far.
func (c *Config) frequencies(r Rope, length int) []float32 {
	dim, theta := c.rotary(r), r.Theta
	if r.Type == "dynamic" && length > c.MaxPositions {
		d := float64(dim)
		grown := float32(float32(float32(length)*float32(r.Factor))/float32(c.MaxPositions)) - float32(r.Factor-1)
		theta = float64(float32(theta) * float32(math.Pow(float64(grown), float64(float32(d/(d-2))))))
	}
	if r.Type == ntkAlpha {
		d := float64(dim)
		theta *= math.Pow(r.Alpha, d/(d-2))
	}
	period := make([]float32, dim/2) // theta^(2i/dim)
	for i := range period {
		exp := float32(2*i) / float32(dim)
		period[i] = float32(math.Pow(float64(float32(theta)), float64(exp)))
	}
	out := make([]float32, len(period))
	ramp := r.yarnRamp(dim)
	turns := int(cmp.Or(r.Partial, 1)*float64(dim)) / 2 // pairs with a frequency other than 0, if the type is proportional
	for i, p := range period {
		f := 1 / p
		switch r.Type {
		case "linear":
			f /= float32(r.Factor)
		case proportional:
			if f /= float32(cmp.Or(r.Factor, 1)); i >= turns {
				f = 0
			}
		case "llama3":
			f = r.llama3(f)
		case "yarn":
			f = ramp.mix(r, i, p)
		case "longrope":
			factor := r.ShortFactor
			if length > r.OriginalMaxPositions {
				factor = r.LongFactor
			}
			f = 1 / float32(float32(factor[i])*p)
		}
		out[i] = f
	}
	return out
}

// attentionFactor returns the factor by which the rope type multiplies cos and sin, for documents
// of length tokens; 1 if the type has none.
func (c *Config) attentionFactor(r Rope, length int) float64 {
	switch {
	case r.ShortMScale != 0 && length <= r.OriginalMaxPositions:
		return r.ShortMScale
	case r.LongMScale != 0:
		return r.LongMScale
	case r.AttentionFactor != 0:
		return r.AttentionFactor
	case r.Type == "yarn" && r.MScale != 0 && r.MScaleAllDim != 0:
		return yarnScale(r.Factor, r.MScale) / yarnScale(r.Factor, r.MScaleAllDim)
	case r.Type == "yarn":
		return yarnScale(r.Factor, 1)
	case r.Type == "longrope":
		if factor := cmp.Or(r.Factor, float64(c.MaxPositions)/float64(r.OriginalMaxPositions)); factor > 1 {
			return math.Sqrt(1 + math.Log(factor)/math.Log(float64(r.OriginalMaxPositions)))
		}
	}
	return 1
}

// yarnScale returns yarn's attention temperature, 0.1·mscale·ln(factor) + 1; 1 if factor is at most 1. Source:
// arXiv:2309.00071.
func yarnScale(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*mscale*math.Log(factor) + 1
}

// ramp is the range of frequency indices in which yarn interpolates. Frequencies below low stay as
// they are, those above high are divided by the factor. Source: arXiv:2309.00071.
type ramp struct{ low, high float64 }

func (r Rope) yarnRamp(dim int) ramp {
	if r.Type != "yarn" {
		return ramp{}
	}
	// at returns the index, as a real number, of the frequency that makes the given number of turns
	// within the original length.
	at := func(turns float64) float64 {
		return float64(dim) * math.Log(float64(r.OriginalMaxPositions)/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	low, high := at(cmp.Or(r.BetaFast, 32)), at(cmp.Or(r.BetaSlow, 1))
	if !r.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dim-1))
	if low == high {
		high += 0.001
	}
	return ramp{low, high}
}

// mix returns yarn's frequency number i: a weighted mean of 1/p, the frequency without scaling, and 1/(Factor·p). The
// ramp gives the weight.
func (a ramp) mix(r Rope, i int, p float32) float32 {
	t := (float32(i) - float32(a.low)) / float32(a.high-a.low)
	keep := 1 - min(max(t, 0), 1)
	stretched := 1 / float32(float32(r.Factor)*p)
	return float32(stretched*float32(1-keep)) + float32(1/p*keep)
}

// llama3 scales one inverse frequency, with the roundings of _compute_llama3_parameters in
// transformers.modeling_rope_utils. PyTorch divides a number by a tensor by multiplying with the tensor's reciprocal,
// so this code does too.
func (r Rope) llama3(f float32) float32 {
	old := float64(r.OriginalMaxPositions)
	wavelen := float32(1/f) * float32(2*math.Pi)
	factor := float32(r.Factor)
	switch {
	case wavelen > float32(old/r.LowFreqFactor):
		return f / factor
	case wavelen < float32(old/r.HighFreqFactor):
		return f
	}
	t := float32(float32(1/wavelen)*float32(old)) - float32(r.LowFreqFactor)
	smooth := t / float32(r.HighFreqFactor-r.LowFreqFactor)
	return float32(float32(float32(1-smooth)*f)/factor) + float32(smooth*f)
}
