package actors

import (
	"fmt"
	"math"
	"testing"

	"mt/data"
	"mt/device/cpu"
	"mt/host"
	"mt/internal/synchronous"
)

// synchronous trains as tr says without the pipeline: all on the device at once,
// one step after the other.
func (tr trial) synchronous(t *testing.T) outcome {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := tr.config()
	p := tr.plan(c)
	store, err := host.NewStore(p.Layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	tr.fill(store, c)
	if tr.spoil != nil {
		tr.spoil(store)
	}
	s, err := synchronous.New(dev, store, p)
	if err != nil {
		t.Fatal(err)
	}
	var out outcome
	o := tr.options(dev, store, nil, p, &out)
	adam := o.Adam
	for step := 1; step <= tr.steps; step++ {
		b, err := o.Batch(step, false)
		if err != nil {
			t.Fatal(err)
		}
		adam.LR = o.Schedule.LR(step)
		adam.Step++
		r, err := s.Step(b, adam, o.MaxGradNorm)
		if err != nil {
			t.Fatal(err)
		}
		if r.Skipped {
			adam.Step--
		}
		out.steps = append(out.steps, fmt.Sprintf("%d %x %x %t", step, math.Float64bits(r.Loss), math.Float64bits(r.GradNorm), r.Skipped))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	out.state = stateOf(store)
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	return out
}

// TestPipelineEqualsTheSynchronousStep: the pipeline gives the bits of the step that does
// one thing after the other, and keeps nothing of a block's forward.
func TestPipelineEqualsTheSynchronousStep(t *testing.T) {
	for name, shape := range map[string]func(*trial){
		"fp32":                 func(*trial) {},
		"fp32-no-clip":         func(tr *trial) { tr.noClip = true },
		"fp32-qknorm":          func(tr *trial) { tr.qkNorm = true },
		"one-micro-batch":      func(tr *trial) { tr.micro = 1000 },
		"many-micro-batches":   func(tr *trial) { tr.micro = 1 },
		"bf16":                 func(tr *trial) { tr.bf16 = true },
		"bf16-bf16grads":       func(tr *trial) { tr.bf16, tr.gradBF16 = true, true },
		"tied":                 func(tr *trial) { tr.tied = true },
		"tied-bf16-bf16grads":  func(tr *trial) { tr.tied, tr.bf16, tr.gradBF16 = true, true, true },
		"tied-no-clip":         func(tr *trial) { tr.tied, tr.noClip = true, true },
		"parts":                func(tr *trial) { tr.shards = 3 },
		"parts-tied-bf16grads": func(tr *trial) { tr.shards, tr.tied, tr.bf16, tr.gradBF16 = 4, true, true, true },
		"experts":              func(tr *trial) { tr.experts, tr.chosen = 5, 2 },
		"experts-idle":         func(tr *trial) { tr.experts, tr.chosen = 24, 1 },
		"experts-balanced":     func(tr *trial) { tr.experts, tr.chosen, tr.aux, tr.bf16, tr.gradBF16 = 7, 3, true, true, true },
		"experts-parts-tied-no-clip": func(tr *trial) {
			tr.experts, tr.chosen, tr.shards, tr.tied, tr.noClip = 6, 2, 3, true, true
		},
		"loss-not-finite": func(tr *trial) {
			tr.maxNonFinite, tr.spoil, tr.batch = 5, spoilWeights(0), withToken0(2, tr.rows, tr.micro)
		},
		"gradient-not-finite": func(tr *trial) { tr.maxNonFinite, tr.spoil = 5, tr.spoilGradient },
		"nothing-supervised": func(tr *trial) {
			tr.batch = func(step int, b *data.Batch) {
				for i := range b.MicroBatches {
					for k := range b.MicroBatches[i].Targets {
						b.MicroBatches[i].Targets[k] = data.IgnoreIndex
					}
				}
				b.Supervised = 0
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := base()
			shape(&tr)
			want := tr.synchronous(t)
			for _, copied := range []bool{false, true} {
				t.Run(fmt.Sprintf("copied-%t", copied), func(t *testing.T) {
					tr := tr
					tr.copyTiles = copied
					sameAs(t, want, tr)
				})
			}
		})
	}
}
