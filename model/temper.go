package model

import "math"

// Temper is what queries are multiplied by at position p of their document, 1 + Scale·ln(1 + ⌊(p + Ahead)/Every⌋): scores
// grow with the number of positions that a query sees. Source: arXiv:2501.19399; transformers.Llama4TextConfig, where it is
// called attn_temperature_tuning.
type Temper struct {
	Scale, Every float64
	Ahead        int
}

// At is the factor at position p.
func (t Temper) At(p int) float64 {
	return 1 + t.Scale*math.Log1p(math.Floor(float64(p+t.Ahead)/t.Every))
}

// Tempers says whether a block's queries are multiplied by Temper.
func (c *Config) Tempers(block int) bool {
	return c.Temper != nil && (c.NoRope == nil || c.NoRope[block])
}
