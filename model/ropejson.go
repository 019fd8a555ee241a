package model

// ropeJSON writes the rotary embeddings in both spellings.
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

// parameters is the mapping of r in Transformers 5.
func (r Rope) parameters() map[string]any {
	m := r.json()
	m["rope_theta"] = float(r.Theta)
	return m
}

// json is the mapping of r without its base, which stands elsewhere in
// Transformers 4.
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
