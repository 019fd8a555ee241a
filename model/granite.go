package model

import "strconv"

func init() {
	register(family{
		arch: "GraniteForCausalLM", modelType: "granite",
		defaults: map[string]any{"max_position_embeddings": 2048},
		keys: []string{"attention_bias", "mlp_bias", "embedding_multiplier", "residual_multiplier", "attention_multiplier",
			"logits_scaling"},
		options: func(c *Config, f *fields) {
			c.biases(f)
			c.MLPBias = f.bool("mlp_bias", false)
			c.multipliers(f)
			c.noWindow(f)
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["mlp_bias"] = c.QKVBias, c.MLPBias
			c.multipliersJSON(m)
		},
	})
}

// Limits on the factors that scale activations. They are far beyond any published model's factors
// and far within the range of fp32.
const minMultiplier, maxMultiplier = 1e-6, 1e6

// multipliers reads Granite's four multipliers. Source: transformers.GraniteConfig; the idea is from arXiv:2203.03466
// (µP).
func (c *Config) multipliers(f *fields) {
	read := func(key string) float64 { return f.float(key, 1, minMultiplier, maxMultiplier) }
	c.EmbedScale, c.ResidualScale = read("embedding_multiplier"), read("residual_multiplier")
	c.AttnScale, c.LogitScale = read("attention_multiplier"), 1/read("logits_scaling")
}

func (c *Config) multipliersJSON(m map[string]any) {
	m["embedding_multiplier"], m["residual_multiplier"] = float(c.EmbedScale), float(c.ResidualScale)
	m["attention_multiplier"], m["logits_scaling"] = float(c.AttnScale), float(inverse(c.LogitScale))
}

// inverse returns 1/x rounded to 15 digits, so that inverse(inverse(x)) is x. logits_scaling in
// config.json is the inverse of Config.LogitScale, and so survives reading and writing.
func inverse(x float64) float64 {
	y, _ := strconv.ParseFloat(strconv.FormatFloat(1/x, 'g', 15, 64), 64) // formatted text always parses
	return y
}
