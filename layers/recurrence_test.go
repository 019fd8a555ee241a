package layers

import (
	"math"
	"testing"

	"mt/device"
	"mt/model"
)

// TestRecurrencesEndWithDocuments: a row of two documents gives the same losses and gradients as
// two rows with one document each. So no state passes from one document to the next.
func TestRecurrencesEndWithDocuments(t *testing.T) {
	for name, cfg := range map[string]*model.Config{"gated delta net": recurrentConfig(), "short convolution": shortConvConfig(true), "Mamba-2": mamba2Config(true),
		"Mamba-2 beside attention": besideConfig(), "KDA": kdaConfig()} {
		t.Run(name, func(t *testing.T) {
			seqs := sequences(cfg.VocabSize, 1, 5, 8)
			s := spec(cfg, KeepNothing, device.F32)
			dev := devices[len(devices)-1].open(t)
			row, rows := newRig(t, dev, s, nil), newRig(t, dev, s, nil)
			one, two := row.step(row.batch(seqs)), rows.step(rows.batch(seqs[:1], seqs[1:]))
			if d := relativeDistance(one.losses, two.losses); d > 1e-6 {
				t.Errorf("losses differ by %g", d)
			}
			for tensor, g := range one.grads {
				if d := relativeDistance(g, two.grads[tensor]); d > gradientBound {
					t.Errorf("the gradient of %s differs by %g", tensor, d)
				}
			}
		})
	}
}

// relativeDistance returns the distance of a and b relative to the length of b.
func relativeDistance(a, b []float64) float64 {
	var sum, all float64
	for i := range b {
		sum, all = sum+(a[i]-b[i])*(a[i]-b[i]), all+b[i]*b[i]
	}
	return math.Sqrt(sum) / math.Sqrt(max(all, 1e-30))
}
