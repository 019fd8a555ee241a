package model

import "math"

var ropeKeys = []string{"rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
	"original_max_position_embeddings", "partial_rotary_factor"}

const defaultTheta = 10000

// parseRope reads rope_theta and rope_scaling (Transformers 4) or
// rope_parameters (5). Where both are there they must say the same.
func parseRope(f *fields) Rope {
	theta := f.float("rope_theta", defaultTheta, 1e-3, 1e15)
	v4, v5 := f.object("rope_scaling"), f.object("rope_parameters")
	r := Rope{Type: "default", Theta: theta}
	if v4 != nil {
		r = oneRope(f, v4, theta)
	}
	if v5 == nil {
		return r
	}
	five := oneRope(f, v5, theta)
	if v4 != nil && five != r {
		f.fail("rope_parameters", "says otherwise than rope_scaling; remove one of them")
	}
	if f.has("rope_theta") && five.Theta != theta {
		f.fail("rope_parameters", "rope_theta is %g there and %g at the top level; remove one of them", five.Theta, theta)
	}
	return five
}

// oneRope reads one of the two mappings; its mistakes go to f.
func oneRope(f, o *fields, theta float64) Rope {
	r := Rope{Type: o.str("rope_type", o.str("type", "default")), Theta: o.float("rope_theta", theta, 1e-3, 1e15)}
	if p := o.float("partial_rotary_factor", 1, 0, 1); p != 1 {
		o.fail("partial_rotary_factor", "%g is not supported, only 1", p)
	}
	switch r.Type {
	case "default":
	case "llama3":
		for _, k := range []string{"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"} {
			if !o.has(k) {
				o.fail(k, "missing; rope type llama3 needs it")
			}
		}
		r.Factor = o.float("factor", 1, 1, 1e6)
		r.LowFreqFactor = o.float("low_freq_factor", 1, 1e-6, 1e6)
		r.HighFreqFactor = o.float("high_freq_factor", 2, 1e-6, 1e6)
		r.OriginalMaxPositions = o.int("original_max_position_embeddings", 1, 1, maxPositions)
		if r.HighFreqFactor <= r.LowFreqFactor {
			o.fail("high_freq_factor", "%g must be above low_freq_factor, %g", r.HighFreqFactor, r.LowFreqFactor)
		}
	default:
		o.fail("rope_type", "%q is not supported; known: default, llama3", r.Type)
	}
	if f.err == nil {
		f.err = o.err
	}
	return r
}

// RopeFrequencies are the HeadDim/2 inverse frequencies, rounded at every step
// where Transformers' float32 tensors are: 1/theta^(2i/d), and for "llama3"
// scaled by wavelength (transformers.modeling_rope_utils,
// _compute_llama3_parameters).
func (c *Config) RopeFrequencies() []float32 {
	out := make([]float32, c.HeadDim/2)
	for i := range out {
		exp := float32(2*i) / float32(c.HeadDim)
		f := 1 / float32(math.Pow(float64(float32(c.Rope.Theta)), float64(exp)))
		if c.Rope.Type == "llama3" {
			f = c.Rope.llama3(f)
		}
		out[i] = f
	}
	return out
}

// llama3 scales one inverse frequency. A number divided by a tensor is, in
// PyTorch, the number times the tensor's reciprocal.
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

// RopeTables are cos and sin of position·frequency, each (maxPos, HeadDim/2)
// row-major. The angle is rounded to float32, as Transformers computes it.
func (c *Config) RopeTables(maxPos int) (cos, sin []float32) {
	freq := c.RopeFrequencies()
	cos = make([]float32, maxPos*len(freq))
	sin = make([]float32, maxPos*len(freq))
	for p := range maxPos {
		for i, f := range freq {
			s, c := math.Sincos(float64(float32(p) * f))
			cos[p*len(freq)+i], sin[p*len(freq)+i] = float32(c), float32(s)
		}
	}
	return cos, sin
}
