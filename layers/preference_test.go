package layers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/model"
)

// pairsOf returns two micro-batches of preference pairs, with one pair and with two, whose answers
// differ in length. The reference log-probabilities are near those of a random model, so that no
// loss is flat.
func pairsOf(cfg *model.Config) [][]reference.Pair {
	rng := rand.New(rand.NewPCG(8, 8))
	pair := func(seed uint64, chosen, rejected int) reference.Pair {
		s := sequences(cfg.VocabSize, seed, chosen, rejected)
		return reference.Pair{Chosen: s[0], Rejected: s[1], Reference: [2]float64{-2.5*float64(chosen) + rng.NormFloat64(), -2.5*float64(rejected) + rng.NormFloat64()}}
	}
	return [][]reference.Pair{{pair(1, 7, 5)}, {pair(2, 2, 4), pair(3, 3, 3)}}
}

// preferred puts a batch of preference pairs on the rig's device.
func (r *rig) preferred(mbs [][]reference.Pair, likelihood float32) batch {
	var seqs [][]reference.Sequence
	chosen := 0
	for _, pairs := range mbs {
		var all []reference.Sequence
		for _, p := range pairs {
			all = append(all, p.Chosen, p.Rejected)
			for _, target := range p.Chosen.Targets {
				if target >= 0 {
					chosen++
				}
			}
		}
		seqs = append(seqs, all)
	}
	b := r.batch(seqs...)
	for i, pairs := range mbs {
		b.pairs += len(pairs)
		ref := r.tensor(device.F32, 2*len(pairs))
		var logs []float64
		for _, p := range pairs {
			logs = append(logs, p.Reference[:]...)
		}
		for j, v := range r.put(ref, logs) {
			pairs[j/2].Reference[j%2] = v
		}
		b.mbs[i].Reference = ref
	}
	for i := range b.mbs { // the mean over the chosen answers' targets, in a gradient that is divided by pairs
		b.mbs[i].Likelihood = likelihood * float32(b.pairs) / float32(chosen)
	}
	return b
}

// TestPreferenceGradients: with losses on preference pairs, the gradient of every parameter equals
// the finite difference of the reference's loss, for a whole head and for one in parts. In this
// test keys with a bias are normed after it. Without that norm the softmax hardly depends on the
// bias: its gradient is a small rest of large terms that cancel, with a large share of fp32
// rounding.
func TestPreferenceGradients(t *testing.T) {
	testkit.NotShort(t)
	losses := []op.PreferenceLoss{{Kind: op.Sigmoid, Beta: 0.25}, {Kind: op.Sigmoid, Beta: 0.5, Smoothing: 0.25}, {Kind: op.Hinge, Beta: 0.125}, {Kind: op.IPO, Beta: 0.5}}
	for i, name := range []string{"plain", "everything", "capped", "granite"} {
		at := slices.IndexFunc(configs, func(c struct {
			name string
			cfg  *model.Config
		}) bool {
			return c.name == name
		})
		cfg, loss, likelihood := configs[at].cfg, losses[i], float32(i%2)
		t.Run(fmt.Sprintf("%s,%+v", name, loss), func(t *testing.T) {
			pairs := pairsOf(cfg)
			grads, weights := map[string]map[string][]float64{}, reference.Weights(nil)
			for _, shards := range []int{1, 3} {
				for _, d := range devices {
					sp := spec(cfg, KeepNothing, device.F32)
					sp.Preference, sp.HeadShards = loss, shards
					r := newRig(t, d.open(t), sp, weights)
					grads[fmt.Sprintf("%s, %d parts", d.name, shards)], weights = r.step(r.preferred(pairs, likelihood)).grads, r.ref
				}
			}
			lossOf := func(p reference.Pair, sums [2]float64, targets [2]int) float64 {
				of, _ := oracle.Preference(int(loss.Kind), float64(loss.Beta), float64(loss.Smoothing), sums, p.Reference, targets)
				return of
			}
			of := func() float64 {
				return reference.PreferenceLoss(cfg, weights, slices.Concat(pairs...), lossOf, float64(likelihood))
			}
			rng := rand.New(rand.NewPCG(5, 5))
			for _, name := range slices.Sorted(maps.Keys(weights)) {
				x := weights[name]
				for _, dir := range directions(rng, len(x)) {
					want := reference.Derivative(func(s float64) float64 { return reference.Perturbed(of, x, dir, s) })
					for rig, g := range grads {
						checkGradient(t, rig+" "+name, g[name], dir, want)
					}
				}
			}
		})
	}
}

// TestSamePairMovesNothing: if the two answers of a pair are equal, all gradients are exactly zero,
// whatever the loss.
func TestSamePairMovesNothing(t *testing.T) {
	cfg := configs[0].cfg
	for _, loss := range []op.PreferenceLoss{{Kind: op.Sigmoid, Beta: 0.25}, {Kind: op.Sigmoid, Beta: 0.5, Smoothing: 0.25}, {Kind: op.Hinge, Beta: 0.125}, {Kind: op.IPO, Beta: 0.5}} {
		for _, d := range devices {
			pair := pairsOf(cfg)[0][0]
			pair.Chosen = pair.Rejected
			pair.Reference = [2]float64{float64(op.SameDocuments[0]), float64(op.SameDocuments[1])}
			sp := spec(cfg, KeepNothing, device.F32)
			sp.Preference = loss
			r := newRig(t, d.open(t), sp, nil)
			for name, grad := range r.step(r.preferred([][]reference.Pair{{pair}}, 0)).grads {
				if i := slices.IndexFunc(grad, func(g float64) bool { return g != 0 }); i >= 0 {
					t.Fatalf("%s, %+v: %s: element %d is %g", d.name, loss, name, i, grad[i])
				}
			}
		}
	}
}

// TestPreferenceBits: chunk sizes, hidden states on the host and the number of threads change no
// bit of losses and gradients on preference pairs. An evaluation has the losses of training.
func TestPreferenceBits(t *testing.T) {
	cfg := configs[0].cfg
	sp := spec(cfg, KeepNothing, device.BF16)
	sp.Preference = op.PreferenceLoss{Kind: op.Sigmoid, Beta: 0.25}
	for _, shards := range []int{1, 2} {
		sp.HeadShards = shards
		r := newRig(t, openCPU(t, 1), sp, nil)
		b := r.preferred(pairsOf(cfg), 1)
		want := r.step(b)
		compareBits(t, "an evaluation", result{losses: r.evaluate(b)}, result{losses: want.losses})
		again := sp
		again.OnHost = true
		again.Scratch = make([]byte, again.ScratchBytes(true))
		other := newRig(t, openCPU(t, 2), again, r.ref)
		compareBits(t, "hidden states on the host", other.step(other.preferred(pairsOf(cfg), 1)), want)
	}
}

// TestPreferenceFLOPs: training on pairs computes the logits of a whole head twice, so it adds one
// product. A head in parts computes them twice in any case.
func TestPreferenceFLOPs(t *testing.T) {
	sp := spec(configs[0].cfg, KeepNothing, device.F32)
	if got := sp.HeadRecomputedFLOPs(7); got != 0 {
		t.Errorf("without pairs %d", got)
	}
	sp.Preference = op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1}
	for _, shards := range []int{1, 3} {
		sp.HeadShards = shards
		if got := sp.HeadRecomputedFLOPs(7); got != 2*7*12*11 {
			t.Errorf("%d parts: %d", shards, got)
		}
	}
}
