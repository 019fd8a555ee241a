package model

import (
	"cmp"
	"math"
	"slices"
)

// RopeTables are cos and sin of position·frequency times the attention factor,
// for documents of at most maxPos tokens: for each of Ropes a table (RopeRows,
// Rotary/2) row-major, one after the other. Where frequencies depend on a
// document's length a table has a section for each range of lengths; RopeShift
// says where one begins. The angle is rounded to float32, as Transformers
// computes it.
//
// Behind them Temper, if the model has one, has a table (RopeRows, HeadDim/2): a factor is a
// rotation by no angle. Then there are HeadDim ones, the weights of a q/k norm without weights.
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
	if c.Temper != nil {
		for _, length := range c.ropeSections(maxPos) {
			for p := range length {
				cos = append(cos, slices.Repeat([]float32{float32(c.Temper.At(p))}, c.HeadDim/2)...)
			}
		}
	}
	if c.QKNormPlain {
		cos = append(cos, slices.Repeat([]float32{1}, c.HeadDim)...)
	}
	return cos, append(sin, make([]float32, len(cos)-len(sin))...)
}

// ropeSections are, for each section of a table, the length of its longest documents.
func (c *Config) ropeSections(maxPos int) []int {
	var out []int
	for _, b := range c.ropeBounds() {
		if b < maxPos {
			out = append(out, b)
		}
	}
	return append(out, maxPos)
}

// frequencies are the inverse frequencies of r for documents of length tokens. They are
// rounded wherever Transformers' float32 tensors are. With dynamic they are those of the
// longest document of the section, where Transformers takes the longest seen so far.
func (c *Config) frequencies(r Rope, length int) []float32 {
	dim, theta := c.rotary(r), r.Theta
	if r.Type == "dynamic" && length > c.MaxPositions {
		d := float64(dim)
		grown := float32(float32(float32(length)*float32(r.Factor))/float32(c.MaxPositions)) - float32(r.Factor-1)
		theta = float64(float32(theta) * float32(math.Pow(float64(grown), float64(float32(d/(d-2))))))
	}
	period := make([]float32, dim/2) // theta^(2i/dim)
	for i := range period {
		exp := float32(2*i) / float32(dim)
		period[i] = float32(math.Pow(float64(float32(theta)), float64(exp)))
	}
	out := make([]float32, len(period))
	ramp := r.yarnRamp(dim)
	for i, p := range period {
		f := 1 / p
		switch r.Type {
		case "linear":
			f /= float32(r.Factor)
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

// attentionFactor is what cos and sin are multiplied by for documents of length tokens.
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

// yarnScale is the temperature of arXiv:2309.00071.
func yarnScale(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*mscale*math.Log(factor) + 1
}

// ramp is where yarn goes over from unchanged frequencies to those divided by the factor:
// from element low to element high. Source: arXiv:2309.00071.
type ramp struct{ low, high float64 }

func (r Rope) yarnRamp(dim int) ramp {
	if r.Type != "yarn" {
		return ramp{}
	}
	// at is the element that turns that many times within the original length.
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

// mix is frequency i, whose period is p.
func (a ramp) mix(r Rope, i int, p float32) float32 {
	t := (float32(i) - float32(a.low)) / float32(a.high-a.low)
	keep := 1 - min(max(t, 0), 1)
	stretched := 1 / float32(float32(r.Factor)*p)
	return float32(stretched*float32(1-keep)) + float32(1/p*keep)
}

// llama3 scales one inverse frequency (transformers.modeling_rope_utils,
// _compute_llama3_parameters). A number divided by a tensor is, in PyTorch, the
// number times the tensor's reciprocal.
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
