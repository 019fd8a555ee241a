package optim

import (
	"fmt"
	"testing"
)

// BenchmarkUpdates moves 4 Mi split parameters on one core; its rate is in parameters.
func BenchmarkUpdates(b *testing.B) {
	adam, lion := AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}, Lion{Beta1: 0.9, Beta2: 0.99}
	for _, level := range Levels() {
		for _, o := range []Optimizer{adam, Quantised{adam, 8}, Quantised{adam, 4}, lion, Quantised{lion, 8}, SGD{Momentum: 0.9}} {
			for _, master := range []string{"fp32", "bf16"} {
				b.Run(fmt.Sprintf("%s/%T%v/%s", level, o, o, master), func(b *testing.B) {
					defer Use(Use(level))
					const n = 4 << 20
					l := matrix(n, true)
					l.BF16Master = master == "bf16"
					w, states := held(&l, o.Planes)
					g := gradOf(n, false, 1, mean)
					b.SetBytes(n)
					for i := 0; b.Loop(); i++ {
						update(o, Rate{LR: 1e-3, Step: int64(i + 1), Clip: 1}, w, states, g)
					}
				})
			}
		}
	}
}
