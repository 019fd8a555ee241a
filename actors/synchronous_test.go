package actors

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"mt/base/accounts"
	"mt/cudart/emu"
	"mt/data"
	"mt/device"
	"mt/device/cpu"
	"mt/device/op"
	"mt/device/wrap"
	"mt/host"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/internal/testkit/synchronous"
	"mt/layers"
	"mt/layers/schedule"
	"mt/plan"
)

// synchronous trains tr without actors, as the reference for the pipeline: everything is on the
// device, and operations follow each other. It runs on the CPU unless tr opens a device.
func (tr trial) synchronous(t *testing.T) (out outcome, err error) {
	t.Helper()
	open := tr.open
	if open == nil {
		open = func() (device.Device, error) { return cpu.New(cpu.Options{Threads: 1}) }
	}
	real, err := open()
	testkit.NoError(t, err)
	defer func() {
		use := real.Usage()
		if left := use.Total - use.Now[accounts.Context]; left != 0 {
			t.Errorf("the steps left %d bytes of device memory behind", left)
		}
		err = errors.Join(err, real.Close())
	}()
	dev := real
	if tr.wrap != nil {
		dev = tr.wrap(real)
	}
	c := tr.config()
	p := tr.plan(c)
	store, err := host.NewStore(p.Layouts, tr.recipe().Planes, nil)
	testkit.NoError(t, err)
	defer store.Close()
	store.SetRoundingSeed(14)
	tr.fill(t, store, c)
	if tr.spoil != nil {
		tr.spoil(store)
	}
	defer func() { out.state = stateOf(t, store) }()
	out.versions = append(out.versions, stateOf(t, store))
	s, err := synchronous.New(dev, store, p)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.LayerNorms = tr.layerwise
	if tr.pairs != op.NoPreference {
		its := tr.preferences()
		s.Likelihood, s.Reference = its.Likelihood, func(id int64) [2]float32 { return its.Reference(false, id) }
	}
	o := tr.options([]device.Device{dev}, store, nil, p, &out)
	rate := optim.Rate{}
	for step := 1; step <= tr.steps; step++ {
		b, err := o.Batch(step, false)
		testkit.NoError(t, err)
		rate.LR = o.Schedule.LR(step)
		rate.Step++
		r, err := s.Step(b, o.Optimizer, rate, o.MaxGradNorm)
		if err != nil {
			return out, err
		}
		if r.Skipped {
			rate.Step--
		}
		out.versions = append(out.versions, stateOf(t, store))
		out.steps = append(out.steps, fmt.Sprintf("%d %x %x %t", step, math.Float64bits(r.Loss), math.Float64bits(r.GradNorm), r.Skipped))
	}
	return out, nil
}

// TestSynchronousStepFails: if a device call fails, the reference step (synchronous) returns its
// error, changes no weight and frees its memory.
func TestSynchronousStepFails(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	tr := base()
	tr.blocks, tr.rows, tr.steps, tr.tied, tr.gradBF16 = 1, 2, 0, true, true
	tr.experts, tr.chosen, tr.aux, tr.shards = 2, 1, true, 2
	before := testkit.Must(tr.synchronous(t))(t)
	tr.steps = 1
	for call := int64(1); ; call++ {
		var dev *wrap.Failing
		tr.wrap = func(d device.Device) device.Device {
			dev = wrap.Fail(d, call)
			return dev
		}
		got, err := tr.synchronous(t)
		if dev.Calls() < call {
			if call < 200 {
				t.Errorf("only %d calls were tried", call-1)
			}
			return
		}
		var want *wrap.Fault
		if !errors.As(err, &want) || want.Call != call {
			t.Fatalf("call %d failed; the step says %v", call, err)
		}
		if got.digest() != before.digest() {
			t.Fatalf("%v: weights or moments have changed", want)
		}
	}
}

// TestPipelineEqualsTheSynchronousStep: the pipeline gives the same bits as the synchronous step,
// the reference that does one thing after the other and saves nothing of a block's forward.
func TestPipelineEqualsTheSynchronousStep(t *testing.T) {
	for name, shape := range map[string]func(*trial){
		"fp32":                 func(*trial) {},
		"fp32-no-clip":         func(tr *trial) { tr.noClip = true },
		"fp32-qknorm":          func(tr *trial) { tr.qkNorm = true },
		"one-micro-batch":      func(tr *trial) { tr.micro = 1000 },
		"many-micro-batches":   func(tr *trial) { tr.micro = 1 },
		"lanes-order":          func(tr *trial) { tr.order, tr.micro = schedule.Lanes, 1 },
		"lanes-order-experts":  func(tr *trial) { tr.order, tr.experts, tr.chosen, tr.shards = schedule.Lanes, 5, 3, 2 },
		"bf16":                 func(tr *trial) { tr.bf16 = true },
		"bf16-bf16grads":       func(tr *trial) { tr.bf16, tr.gradBF16 = true, true },
		"tied":                 func(tr *trial) { tr.tied = true },
		"tied-bf16-bf16grads":  func(tr *trial) { tr.tied, tr.bf16, tr.gradBF16 = true, true, true },
		"tied-no-clip":         func(tr *trial) { tr.tied, tr.noClip = true, true },
		"parts":                func(tr *trial) { tr.shards = 3 },
		"parts-tied-bf16grads": func(tr *trial) { tr.shards, tr.tied, tr.bf16, tr.gradBF16 = 4, true, true, true },
		"experts":              func(tr *trial) { tr.experts, tr.chosen = 5, 3 },
		"experts-idle":         func(tr *trial) { tr.experts, tr.chosen = 24, 1 },
		"experts-balanced":     func(tr *trial) { tr.experts, tr.chosen, tr.aux, tr.bf16, tr.gradBF16 = 7, 3, true, true, true },
		"experts-parts-tied-no-clip": func(tr *trial) {
			tr.experts, tr.chosen, tr.shards, tr.tied, tr.noClip = 6, 2, 3, true, true
		},
		"noise":                   func(tr *trial) { tr.noise, tr.micro = true, 12 },
		"noise-tied-bf16-experts": func(tr *trial) { tr.noise, tr.tied, tr.bf16, tr.experts, tr.chosen = true, true, true, 5, 3 },
		"layerwise":               func(tr *trial) { tr.layerwise = true },
		"layerwise-tied":          func(tr *trial) { tr.layerwise, tr.tied, tr.shards, tr.depths.GradSlabs = true, true, 2, 2 },
		"layerwise-muon":          func(tr *trial) { tr.layerwise, tr.muon, tr.bf16, tr.gradBF16 = true, true, true, true },
		"layerwise-experts":       func(tr *trial) { tr.layerwise, tr.experts, tr.chosen = true, 5, 3 },
		"muon":                    func(tr *trial) { tr.muon = true },
		"muon-buffers":            func(tr *trial) { tr.muon, tr.depths.MatrixBuffers = true, 3 },
		"muon-no-clip-tied":       func(tr *trial) { tr.muon, tr.noClip, tr.tied, tr.bf16, tr.gradBF16 = true, true, true, true, true },
		"muon-experts": func(tr *trial) {
			tr.muon, tr.bf16, tr.experts, tr.chosen, tr.depths.MatrixBuffers = true, true, 5, 3, 2
		},
		"ahead-noise":      func(tr *trial) { tr.ahead, tr.noise, tr.micro = true, true, 12 },
		"ahead-parts-tied": func(tr *trial) { tr.ahead, tr.tied, tr.shards, tr.bf16, tr.gradBF16 = true, true, 3, true, true },
		"ahead-experts": func(tr *trial) {
			tr.ahead, tr.experts, tr.chosen, tr.order, tr.noClip = true, 5, 3, schedule.Lanes, true
		},
		"pairs":              func(tr *trial) { tr.pairs = op.Sigmoid },
		"pairs-parts-bf16":   func(tr *trial) { tr.pairs, tr.shards, tr.bf16, tr.gradBF16 = op.IPO, 3, true, true },
		"pairs-tied-no-clip": func(tr *trial) { tr.pairs, tr.tied, tr.noClip, tr.micro = op.Hinge, true, true, 1 },
		"pairs-host":         func(tr *trial) { tr.pairs, tr.onHost = op.Sigmoid, true },
		"pairs-experts":      func(tr *trial) { tr.pairs, tr.experts, tr.chosen, tr.aux = op.Sigmoid, 5, 3, true },
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
			inShort(t, name, "layerwise-muon", "lanes-order-experts")
			t.Parallel()
			tr := base()
			shape(&tr)
			want := testkit.Must(tr.synchronous(t))(t)
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

// TestRandomRunsEqualTheSynchronousStep draws runs with random models, depths, threads, copied or
// shared tiles, micro-batches, recomputation and delays. All give the bits of the synchronous step,
// the reference without a pipeline.
func TestRandomRunsEqualTheSynchronousStep(t *testing.T) {
	n := testkit.Count(t, 24, 8)
	if testing.Short() {
		n = 1
	}
	first := drawSeed(t, n, 1000)
	for seed := first; seed < first+int64(n); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			tr := randomTrial(rand.New(rand.NewSource(seed)))
			tr.delay = nil
			want := testkit.Must(tr.synchronous(t))(t)
			tr.delay = randomDelays(seed)
			if got := mustRun(t, tr); got.digest() != want.digest() {
				t.Errorf("the pipeline gives %v, the synchronous step %v, in a run of %+v", got.steps, want.steps, tr)
			}
		})
	}
}

// randomKeeps draws for each block which intermediate results of the forward it keeps for the
// backward.
func randomKeeps(r *rand.Rand, blocks int) layers.Keeps {
	out := make(layers.Keeps, blocks)
	for i := range out {
		out[i] = layers.Keep(r.Intn(int(layers.KeepInputs) + 1))
	}
	return out
}

// TestWhatBlocksKeepChangesNothing: whichever intermediate results blocks keep for the backward,
// also with spilled inputs, the run gives the bits of the synchronous step, the reference that
// keeps none. It runs on the CPU and on an emulated GPU.
func TestWhatBlocksKeepChangesNothing(t *testing.T) {
	for name, shape := range map[string]func(*trial){
		"fp32":    func(tr *trial) { tr.blocks = 6 },
		"bf16":    func(tr *trial) { tr.blocks, tr.bf16, tr.tied, tr.qkNorm, tr.noClip = 5, true, true, true, true },
		"shards":  func(tr *trial) { tr.bf16, tr.shards = true, 3 },
		"experts": func(tr *trial) { tr.blocks, tr.experts, tr.chosen, tr.onDemand = 4, 6, 2, true },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.NotShort(t)
			testkit.DrawnInRace(t, 2)
			t.Parallel()
			tr := base()
			shape(&tr)
			tr.steps, tr.rows, tr.maxLen = 2, 4, 11
			draw := func(r *rand.Rand) trial {
				tr := tr
				tr.keeps = randomKeeps(r, tr.blocks)
				tr.depths.ActivationSlots, tr.depths.WeightSlots = 3+r.Intn(9), 1+r.Intn(3)
				tr.evalSteps = r.Intn(2) // evaluations save nothing
				return tr
			}
			want, err := tr.synchronous(t)
			testkit.NoError(t, err)
			for seed := range int64(testkit.Count(t, 30, 6)) {
				r := rand.New(rand.NewSource(seed))
				tr := draw(r)
				tr.copyTiles = r.Intn(2) == 0
				if got := mustRun(t, tr); got.digest() != want.digest() {
					t.Errorf("%v: other bits than the synchronous step", tr.keeps)
				}
			}
			usually(t, name, "shards")
			onGPU, _, end := onCUDA(t, tr, emu.Options{})
			want, err = onGPU.synchronous(t)
			if end(); err != nil {
				t.Fatal(err)
			}
			for seed := range int64(testkit.Count(t, 12, 1)) {
				tr := draw(rand.New(rand.NewSource(seed)))
				tr.keeps[0] = layers.KeepInputs
				if got := runOnCUDA(t, tr, emu.Options{Mode: emu.Random, Seed: uint64(seed)}); !slices.Equal(got.steps, want.steps) || got.digest() != want.digest() {
					t.Errorf("%v: other bits than the synchronous step on an emulated GPU", tr.keeps)
				}
			}
		})
	}
}

// TestStepsReportWhatIsAttendedAgain: a step's report counts the (query, key) pairs that the
// backward computes again, in blocks that do not keep attention's output.
func TestStepsReportWhatIsAttendedAgain(t *testing.T) {
	tr := base()
	tr.steps, tr.keeps = 2, layers.Keeps{layers.KeepNothing, layers.KeepAttention, layers.KeepNothing}
	tr.reported = func(s StepReport) {
		if s.AttendedAgain == 0 || 3*s.AttendedAgain != 2*s.AttendedPairs {
			t.Errorf("step %d reports %d pairs, %d of them again: want two of three", s.Step, s.AttendedPairs, s.AttendedAgain)
		}
	}
	mustRun(t, tr)
}

// randomTrial draws a trial with a random model, batch, depths and other settings.
func randomTrial(r *rand.Rand) trial {
	coin := func() bool { return r.Intn(2) == 0 }
	tr := base()
	tr.blocks, tr.rows, tr.steps, tr.threads = 1+r.Intn(4), 1+r.Intn(6), 1+r.Intn(3), 1+r.Intn(3)
	tr.micro, tr.maxLen = 1+r.Intn(40), 2+r.Intn(20)
	tr.tied, tr.qkNorm, tr.bf16, tr.noClip, tr.sync, tr.copyTiles = coin(), coin(), coin(), coin(), coin(), coin()
	tr.gradBF16 = tr.bf16 && coin()
	tr.keeps = randomKeeps(r, tr.blocks)
	tr.order = schedule.Order(r.Intn(2))
	tr.shards, tr.moreBatches = r.Intn(5), r.Intn(2)
	if coin() {
		tr.experts = 1 + r.Intn(8)
		tr.chosen, tr.aux, tr.onDemand = 1+r.Intn(tr.experts), coin(), coin()
	}
	tr.depths = plan.Depths{WeightSlots: 1 + r.Intn(5), GradBuffers: 1 + r.Intn(3), GradSlabs: 2 + r.Intn(2), ActivationSlots: 3 + r.Intn(9), BatchesAhead: 1 + r.Intn(2)}
	if lanes := 1 + r.Intn(4); lanes > 1 && tr.order == schedule.Lanes {
		tr = tr.withLanes(lanes, r.Int63())
	}
	tr.muon, tr.depths.MatrixBuffers = coin(), 1+r.Intn(3)
	tr.onHost = tr.experts == 0 && coin()
	if coin() {
		tr.pairs = op.Sigmoid
	}
	return tr
}
