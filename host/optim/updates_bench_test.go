package optim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkUpdates updates 8 Mi split parameters on one core, unit by unit. It reports Mparam/s, millions of parameters
// a second, for the median unit. A unit takes some microseconds, so other programs on the core delay few units.
func BenchmarkUpdates(b *testing.B) {
	adam, lion := AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}, Lion{Beta1: 0.9, Beta2: 0.99}
	for _, level := range Levels() {
		for _, o := range []Optimizer{adam, Quantised{adam, 8}, Quantised{adam, 4}, lion, Quantised{lion, 8}, SGD{Momentum: 0.9}} {
			for _, master := range []string{"fp32", "bf16", "fp32, averaged", "bf16, averaged"} {
				b.Run(fmt.Sprintf("%s/%T%v/%s", level, o, o, master), func(b *testing.B) {
					defer Use(Use(level))
					const n = 8 << 20
					l := matrix(n, true)
					var average Average
					if strings.HasSuffix(master, "averaged") {
						average.Decay = 0.999
					}
					l.BF16Master = strings.HasPrefix(master, "bf16")
					w, states := held(&l, average.With(o.Planes))
					w.Means = average.Means(states)
					g := gradOf(n, false, 1, mean)
					var took []time.Duration
					for i := 0; b.Loop(); i++ {
						step := o.At(Rate{LR: 1e-3, Step: int64(i + 1), Clip: 1})
						for _, u := range o.Units(l) {
							began := time.Now()
							step.Step(u, w, states, g.Part(u.At, u.N))
							took = append(took, time.Since(began))
						}
					}
					slices.Sort(took)
					b.ReportMetric(pieceElems/1e6/took[len(took)/2].Seconds(), "Mparam/s")
				})
			}
		}
	}
}
