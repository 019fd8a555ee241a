package model

import (
	"math"
	"testing"
)

// TestInitOfResiduals: with ResidualInit, matrices whose product is added to the residual stream
// start with a smaller spread. All other matrices keep InitializerRange.
func TestInitOfResiduals(t *testing.T) {
	c := &Config{HiddenSize: 64, IntermediateSize: 64, NumLayers: 8, NumHeads: 1, NumKVHeads: 1, HeadDim: 64, InitializerRange: 0.5}
	spread := func(r Role) float64 {
		p, dst := matrix(r, 64, stack([]string{"x"}, 64)), make([]float32, 64*64)
		InitRow(c, p, 0, 1, dst)
		var sum float64
		for _, v := range dst {
			sum += float64(v) * float64(v)
		}
		return math.Sqrt(sum / float64(len(dst)))
	}
	plain := spread(RoleO)
	c.ResidualInit = true
	for role, want := range map[Role]float64{RoleO: plain / 4, RoleDown: plain / 4, RoleUp: plain} {
		if got := spread(role); math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: standard deviation %g, want %g", role, got, want)
		}
	}
}
