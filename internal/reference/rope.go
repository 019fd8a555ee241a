package reference

import (
	"math"

	"mt/model"
)

// Frequencies are the rotary embedding's angles for each position, one for every
// pair of elements that turns, in a document of length tokens. Sources: llama3 is
// Llama 3.1's; linear and dynamic are arXiv:2306.15595 and what follows from it;
// yarn is arXiv:2309.00071; longrope is arXiv:2402.13753.
func Frequencies(cfg *model.Config, r model.Rope, length int) []float64 {
	dim := float64(cfg.HeadDim)
	if cfg.Latent != nil {
		dim = float64(cfg.Latent.RopeDim)
	}
	if r.Partial != 0 {
		dim = math.Floor(dim * r.Partial)
	}
	theta := r.Theta
	if r.Type == "dynamic" && length > cfg.MaxPositions {
		stretch := r.Factor*float64(length)/float64(cfg.MaxPositions) - r.Factor + 1
		theta *= math.Pow(stretch, dim/(dim-2))
	}
	f := make([]float64, int(dim)/2)
	for i := range f {
		f[i] = math.Pow(theta, -2*float64(i)/dim)
		switch r.Type {
		case "linear":
			f[i] /= r.Factor
		case "llama3":
			turns := float64(r.OriginalMaxPositions) * f[i] / (2 * math.Pi)
			keep := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
			keep = min(max(keep, 0), 1)
			f[i] *= keep + (1-keep)/r.Factor
		case "yarn":
			keep := yarnKeeps(r, dim, float64(i))
			f[i] *= keep + (1-keep)/r.Factor
		case "longrope":
			by := r.ShortFactor
			if length > r.OriginalMaxPositions {
				by = r.LongFactor
			}
			f[i] /= by[i]
		}
	}
	return f
}

// yarnKeeps is the share of pair i's frequency that yarn leaves unchanged: 1 for
// pairs that turn fast, 0 for slow ones, and between them in the middle.
func yarnKeeps(r model.Rope, dim, i float64) float64 {
	pairThatTurns := func(times float64) float64 {
		return dim / 2 * math.Log(float64(r.OriginalMaxPositions)/(2*math.Pi*times)) / math.Log(r.Theta)
	}
	fast, slow := 32.0, 1.0
	if r.BetaFast != 0 {
		fast = r.BetaFast
	}
	if r.BetaSlow != 0 {
		slow = r.BetaSlow
	}
	low, high := pairThatTurns(fast), pairThatTurns(slow)
	if !r.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001
	}
	return 1 - min(max((i-low)/(high-low), 0), 1)
}

// amplitude is what cos and sin are multiplied by in a document of length tokens.
func amplitude(cfg *model.Config, r model.Rope, length int) float64 {
	temperature := func(m float64) float64 { return 1 + 0.1*m*math.Log(max(r.Factor, 1)) }
	if r.ShortMScale != 0 {
		if length > r.OriginalMaxPositions {
			return r.LongMScale
		}
		return r.ShortMScale
	}
	switch {
	case r.AttentionFactor != 0:
		return r.AttentionFactor
	case r.Type == "yarn" && r.MScale*r.MScaleAllDim != 0:
		return temperature(r.MScale) / temperature(r.MScaleAllDim)
	case r.Type == "yarn":
		return temperature(1)
	case r.Type == "longrope":
		original := float64(r.OriginalMaxPositions)
		factor := r.Factor
		if factor == 0 {
			factor = float64(cfg.MaxPositions) / original
		}
		return math.Sqrt(1 + math.Log(max(factor, 1))/math.Log(original))
	}
	return 1
}

// rope rotates the heads of x (tokens, heads, d) in place. Among the elements that turn,
// element i pairs with the one half their number further on or, where the model
// interleaves them, element 2i with the next.
func rope(cfg *model.Config, r model.Rope, x []float64, tokens, d int) {
	heads := len(x) / (tokens * d)
	freq, by := Frequencies(cfg, r, tokens), amplitude(cfg, r, tokens)
	for t := range tokens {
		for i, f := range freq {
			sin, cos := math.Sincos(float64(t) * f)
			for h := range heads {
				p := (t*heads + h) * d
				first, second := p+i, p+i+len(freq)
				if cfg.RopeInterleaved {
					first, second = p+2*i, p+2*i+1
				}
				a, b := x[first], x[second]
				x[first], x[second] = by*(a*cos-b*sin), by*(b*cos+a*sin)
			}
		}
	}
}
