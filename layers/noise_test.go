package layers

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
	"mt/internal/testkit/reference"
)

// TestNoise: with noise on embeddings (NEFTune), losses and gradients equal the reference's with
// the same noise. For a single document of L tokens the noise is that of Transformers' hook: within
// ±alpha/√(L·h), added to the embedding's output.
func TestNoise(t *testing.T) {
	noise, step := op.Noise{Alpha: 3, Seed: 1<<40 + 5}, 6
	for _, c := range configs {
		if !slices.Contains([]string{"plain", "gemma3", "granite", "gpt2"}, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			mbs, place := micro(c.cfg), 0
			for _, seqs := range mbs {
				for i := range seqs {
					s, h := &seqs[i], c.cfg.HiddenSize
					for at := range len(s.IDs) * h {
						size := float64(noise.Alpha) / math.Sqrt(float64(len(s.IDs)*h))
						s.Noise = append(s.Noise, size*oracle.Uniform(noise.Seed, step, place+at/h, at%h))
					}
					place += len(s.IDs)
				}
			}
			grads := map[string]map[string][]float64{} // by device
			var weights reference.Weights
			for _, d := range devices {
				sp := spec(c.cfg, KeepNothing, device.F32)
				sp.Noise = noise
				r := newRig(t, d.open(t), sp, nil)
				b := r.batch(mbs...)
				r.at = step
				got := r.step(b)
				checkLoss(t, d.name, got.losses, b.supervised, reference.Loss(c.cfg, r.ref, slices.Concat(mbs...)))
				grads[d.name], weights = got.grads, r.ref
			}
			loss := func() float64 { return reference.Loss(c.cfg, weights, slices.Concat(mbs...)) }
			rng := rand.New(rand.NewPCG(5, 6))
			for _, name := range slices.Sorted(maps.Keys(weights)) {
				x := weights[name]
				dir := directions(rng, len(x))[0]
				want := reference.Derivative(func(s float64) float64 { return reference.Perturbed(loss, x, dir, s) })
				for dev, g := range grads {
					checkGradient(t, dev+" "+name, g[name], dir, want)
				}
			}
		})
	}
}
