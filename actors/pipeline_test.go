package actors

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/data"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers"
	"mt/plan"
)

// sameAs runs a trial and fails the test unless every bit of its losses, norms, evaluations and
// final state equals want's.
func sameAs(t *testing.T, want outcome, tr trial) {
	t.Helper()
	got := testkit.Must(tr.run(t))(t)
	if !slices.Equal(got.steps, want.steps) {
		t.Errorf("losses or norms differ:\n got %v\nwant %v", got.steps, want.steps)
	}
	if !slices.Equal(got.evals, want.evals) {
		t.Errorf("evaluations differ:\n got %v\nwant %v", got.evals, want.evals)
	}
	if g, w := got.digest(), want.digest(); g != w {
		t.Errorf("weights and moments differ: %x, want %x", g, w)
	}
}

func mustRun(t *testing.T, tr trial) outcome {
	t.Helper()
	out := testkit.Must(tr.run(t))(t)
	if len(out.steps) == 0 && tr.steps > 0 {
		t.Fatal("no step was reported")
	}
	return out
}

// randomDelays returns a CPU device's option that delays every operation of every stream by a
// random time.
func randomDelays(seed int64) func(string, int64) time.Duration {
	var mu sync.Mutex
	r := rand.New(rand.NewSource(seed))
	return func(string, int64) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if r.Intn(4) > 0 {
			return 0
		}
		return time.Duration(r.Intn(60)) * time.Microsecond
	}
}

// TestBitsDoNotDependOnDepths: the results are the same to the bit with any depths, copied or
// shared tiles, numbers of threads, order of updates, kept activations and delays of streams.
func TestBitsDoNotDependOnDepths(t *testing.T) {
	shapes := map[string]trial{}
	add := func(name string, f func(*trial)) {
		tr := base()
		f(&tr)
		shapes[name] = tr
	}
	add("fp32", func(*trial) {})
	add("fp32-tied-qknorm", func(tr *trial) { tr.tied, tr.qkNorm = true, true })
	add("bf16", func(tr *trial) { tr.bf16 = true })
	add("bf16-tied-bf16grads", func(tr *trial) { tr.bf16, tr.tied, tr.gradBF16 = true, true, true })
	add("no-clip", func(tr *trial) { tr.noClip = true })
	add("no-clip-tied-bf16", func(tr *trial) { tr.noClip, tr.tied, tr.bf16 = true, true, true })
	add("eval", func(tr *trial) { tr.evalSteps = 2 })
	add("shards", func(tr *trial) { tr.shards = 3 })
	add("shards-eval-tied-qknorm", func(tr *trial) { tr.shards, tr.evalSteps, tr.tied, tr.qkNorm = 2, 2, true, true })
	add("shards-bf16-bf16grads", func(tr *trial) { tr.shards, tr.bf16, tr.gradBF16 = 4, true, true })
	add("shards-no-clip", func(tr *trial) { tr.shards, tr.noClip = 3, true })
	add("shards-no-clip-tied-bf16-bf16grads", func(tr *trial) {
		tr.shards, tr.noClip, tr.tied, tr.bf16, tr.gradBF16 = 3, true, true, true, true
	})
	addExperts(add)
	addQuantised(add)
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			inShort(t, name, "experts-no-clip-tied-shards")
			usually(t, name, "fp32", "shards-no-clip-tied-bf16-bf16grads", "eval", "experts-aux-bf16", "experts-no-clip-tied-shards", "4-bit", "muon-8-bit")
			t.Parallel()
			if kept := shape.recipe().Planes(optim.Pieces(shape.config().Layouts(shape.bf16)[1].Tensors[1].Param)[0]); shape.wide && !slices.ContainsFunc(kept, func(p optim.Plane) bool { return strings.HasSuffix(p.Name, "_codes") }) {
				t.Fatalf("of a matrix %v are kept, and no codes", kept)
			}
			want := mustRun(t, shape)
			for vary, f := range variations(shape) {
				t.Run(vary, func(t *testing.T) {
					inShort(t, vary, "least-copy", "on-demand-in-place")
					if strings.HasPrefix(vary, "delayed") && vary != "delayed-2" {
						testkit.LongOnly(t)
					}
					tr := shape
					f(&tr)
					sameAs(t, want, tr)
				})
			}
		})
	}
}

// addExperts adds trials of models with experts. In each step some experts get no token.
func addExperts(add func(string, func(*trial))) {
	add("experts", func(tr *trial) { tr.experts, tr.chosen, tr.evalSteps = 24, 1, 2 })
	add("experts-aux-bf16", func(tr *trial) { tr.experts, tr.chosen, tr.aux, tr.bf16, tr.gradBF16 = 7, 3, true, true, true })
	add("experts-shared-aux", func(tr *trial) { tr.experts, tr.chosen, tr.shared, tr.aux = 5, 2, true, true })
	add("experts-shared-sigmoids", func(tr *trial) { tr.experts, tr.chosen, tr.shared, tr.bf16, tr.evalSteps = 9, 1, true, true, 2 })
	add("experts-no-clip-tied-shards", func(tr *trial) {
		tr.experts, tr.chosen, tr.noClip, tr.tied, tr.shards, tr.evalSteps = 12, 2, true, true, 3, 3
	})
}

// addQuantised adds trials whose optimizers keep their moments in 8 or 4 bits.
func addQuantised(add func(string, func(*trial))) {
	for name, by := range map[string]optim.Optimizer{"8-bit": optim.Quantised{By: recipe, Bits: 8}, "4-bit": optim.Quantised{By: recipe, Bits: 4},
		"lion-8-bit": optim.Quantised{By: optim.Lion{Beta1: 0.9, Beta2: 0.99}, Bits: 8}} {
		add(name, func(tr *trial) { tr.wide, tr.by, tr.blocks, tr.steps, tr.tied = true, by, 2, 3, name == "4-bit" })
		add(name+"-no-clip-bf16-masters", func(tr *trial) {
			tr.wide, tr.by, tr.blocks, tr.steps, tr.noClip, tr.bf16, tr.bf16Master = true, by, 2, 3, true, true, true
		})
	}
	add("muon-8-bit", func(tr *trial) {
		m := muonRecipe
		m.Bits, m.Others = 8, optim.Quantised{By: recipe, Bits: 8}
		tr.wide, tr.muon, tr.by, tr.blocks, tr.steps, tr.bf16, tr.depths.MatrixBuffers = true, true, m, 2, 3, true, 2
	})
	add("8-bit-experts", func(tr *trial) {
		tr.wide, tr.by, tr.blocks, tr.steps, tr.experts, tr.chosen, tr.noClip = true, optim.Quantised{By: recipe, Bits: 8}, 2, 3, 3, 2, true
	})
}

func variations(shape trial) map[string]func(*trial) {
	least := plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 1, ActivationSlots: 3, BatchesAhead: 1}
	if shape.tied {
		least.GradSlabs = 2
	}
	v := map[string]func(*trial){
		"least":              func(tr *trial) { tr.depths = least },
		"least-copy":         func(tr *trial) { tr.depths, tr.copyTiles = least, true },
		"copy":               func(tr *trial) { tr.copyTiles = true },
		"synchronous":        func(tr *trial) { tr.sync = true },
		"one-thread":         func(tr *trial) { tr.threads = 1 },
		"three-threads-copy": func(tr *trial) { tr.threads, tr.copyTiles = 3, true },
		"keep-nothing":       func(tr *trial) { tr.keep = layers.KeepNothing },
		"keep-attention":     func(tr *trial) { tr.keep = layers.KeepAttention },
		"two-batches":        func(tr *trial) { tr.moreBatches = 1 },
		"two-batches-copy":   func(tr *trial) { tr.moreBatches, tr.copyTiles = 1, true },
		"keep-qkv-copy":      func(tr *trial) { tr.keep, tr.copyTiles = layers.KeepQKV, true },
	}
	if shape.experts > 0 {
		v["on-demand-copy"] = func(tr *trial) { tr.onDemand, tr.copyTiles = true, true }
		v["on-demand-least-copy"] = func(tr *trial) { tr.onDemand, tr.copyTiles, tr.depths = true, true, least }
		v["on-demand-in-place"] = func(tr *trial) { tr.onDemand = true }
	}
	for i := range 4 {
		d := plan.Depths{WeightSlots: 1 + i, GradBuffers: 1 + i%3, GradSlabs: least.GradSlabs + i%2, ActivationSlots: 3 + i, BatchesAhead: 1 + i%2}
		v[fmt.Sprintf("delayed-%d", i)] = func(tr *trial) {
			tr.depths, tr.copyTiles, tr.delay, tr.keep = d, true, randomDelays(int64(i)), layers.KeepNothing
			tr.moreBatches = i / 2
			tr.onDemand = shape.experts > 0 && i%2 == 0
		}
	}
	return v
}

// TestMicroBatchesDoNotChangeTheLoss: other micro-batches, and a head split over its vocabulary,
// change only the order of sums. Losses agree up to rounding.
func TestMicroBatchesDoNotChangeTheLoss(t *testing.T) {
	testkit.NotShort(t)
	want := mustRun(t, base())
	for _, c := range [][2]int{{1, 0}, {40, 0}, {1000, 0}, {24, 2}, {24, 5}, {1, 37}} {
		tr := base()
		tr.micro, tr.shards = c[0], c[1]
		got := mustRun(t, tr)
		for i := range want.steps {
			a, b := lossOf(t, got.steps[i]), lossOf(t, want.steps[i])
			if d := (a - b) / b; d > 1e-5 || d < -1e-5 {
				t.Errorf("micro-batches of %d, %d parts: step %d: loss %v, want %v", c[0], c[1], i+1, a, b)
			}
		}
	}
	one := base()
	one.shards = 1
	sameAs(t, want, one)
}

// TestStepsCountTheirOwnBytes: the copied bytes in the steps' reports add up to the bytes that the
// devices copied. A slot that keeps its tile from one step to the next saves bytes.
func TestStepsCountTheirOwnBytes(t *testing.T) {
	tr := base()
	same := tr.makeBatch(1)
	tr.copyTiles, tr.depths.WeightSlots = true, 1
	tr.batch = func(_ int, b *data.Batch) { *b = *same }
	tr.steps = 1
	one := mustRun(t, tr)
	tr.steps = 4
	four := mustRun(t, tr)
	if one.h2d == 0 || four.h2d > 4*one.h2d || four.h2d < 3*one.h2d || four.d2h != 4*one.d2h {
		t.Errorf("one step reports %d bytes to the device and %d back, four %d and %d", one.h2d, one.d2h, four.h2d, four.d2h)
	}
}
