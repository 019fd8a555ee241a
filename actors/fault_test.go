package actors

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/data"
	"mt/device"
	"mt/device/wrap"
	"mt/host"
	"mt/internal/testkit"
	"mt/layers"
	"mt/model"
	"mt/plan"
)

// small returns a trial (a test run) with as few device calls as possible that still spills, copies
// and evaluates. Tests that fail each call in turn use it.
func small() trial {
	return trial{blocks: 1, rows: 2, micro: 1, steps: 1, maxLen: 5, keep: layers.KeepNothing, threads: 1, copyTiles: true, evalSteps: 1,
		depths: plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 2, ActivationSlots: 3, BatchesAhead: 1}}
}

// TestEveryDeviceCallMayFail fails call 1, 2, 3, … until a run succeeds. Every failing run returns the call's error and
// leaves no memory and no goroutine.
func TestEveryDeviceCallMayFail(t *testing.T) {
	every := int64(testkit.Every(t, 8))
	undisturbed(t, func(t *testing.T) { everyDeviceCall(t, every) })
}

func everyDeviceCall(t *testing.T, every int64) {
	for name, change := range map[string]func(*trial){
		"clip":    func(*trial) {},
		"no-clip": func(tr *trial) { tr.noClip, tr.tied, tr.bf16, tr.gradBF16 = true, true, true, true },
		"unified": func(tr *trial) { tr.copyTiles = false },
		"shards":  func(tr *trial) { tr.shards, tr.gradBF16 = 2, true },
		"experts": func(tr *trial) { tr.experts, tr.chosen, tr.onDemand, tr.aux = 3, 1, true, true },
		"host":    func(tr *trial) { tr.onHost = true },
		"muon":    func(tr *trial) { tr.muon, tr.evalSteps, tr.depths.MatrixBuffers = true, 0, 2 },
		"experts-unified": func(tr *trial) {
			tr.copyTiles, tr.noClip, tr.experts, tr.chosen = false, true, 2, 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			inShort(t, name, "clip")
			t.Parallel()
			failed := 0
			for call := drawCall(t, every); ; call += every {
				tr := small()
				change(&tr)
				var dev *wrap.Failing
				tr.wrap = func(d device.Device) device.Device {
					dev = wrap.Fail(d, call)
					return dev
				}
				_, err := tr.run(t)
				if err == nil {
					if dev.Calls() >= call {
						t.Fatalf("call %d was to fail and the run succeeded", call)
					}
					break
				}
				failed++
				var want *wrap.Fault
				if !errors.As(err, &want) || want.Call != call {
					t.Fatalf("call %d failed and the run's error is %v", call, err)
				}
				if strings.Contains(err.Error(), "goroutine") {
					t.Fatalf("call %d: the error is a trace: %v", call, err)
				}
			}
			if int64(failed)*every < 100 {
				t.Errorf("only %d calls failed: the run hardly used the device", failed)
			}
		})
	}
}

// settle waits until the goroutines of finished runs have ended: no more than two above the number
// before. If they never end, the time limit of go test prints their stacks.
func settle(t *testing.T, before int) {
	t.Helper()
	for runtime.NumGoroutine() > before+2 {
		time.Sleep(100 * time.Microsecond)
	}
}

// spoilWeights sets one weight of a layer to a non-finite value.
func spoilWeights(layer int) func(*host.Store) {
	return func(s *host.Store) {
		l := s.Layers[layer]
		row := make([]float32, l.Layout.Tensors[0].Cols)
		row[0] = float32(math.Inf(1))
		l.WriteRows(0, 0, 1, row)
	}
}

// withToken0 returns a function that makes each step's batch. Only the batches of the first `steps`
// steps contain token 0.
func withToken0(steps, rows, micro int) func(step int, b *data.Batch) {
	return func(step int, b *data.Batch) {
		var out []data.Row
		for r := range rows {
			row := data.Row{IDs: make([]int32, 3+(step+r)%5)}
			for i := range row.IDs {
				row.IDs[i] = int32(1 + (7*step+3*r+i*i)%36)
			}
			out = append(out, row)
		}
		if step <= steps {
			out[rows/2].IDs[1] = 0
		}
		*b = *data.NewBatch(step, out, micro)
	}
}

// TestNonFiniteStepsAreSkipped: a step with a non-finite loss changes no weights, no moments and
// not Adam's step count; only the learning rate schedule continues. The embedding of token 0 is
// infinite, and the first two of four steps read it. The run ends with the bits of a run that makes
// only the last two steps.
func TestNonFiniteStepsAreSkipped(t *testing.T) {
	for _, noClip := range []bool{false, true} {
		tr := base()
		tr.noClip, tr.maxNonFinite, tr.spoil = noClip, 5, spoilWeights(0)
		tr.batch = withToken0(2, tr.rows, tr.micro)
		short := tr
		short.steps = 0
		before := mustRun(t, short)
		short.steps = 2
		if got := mustRun(t, short); got.digest() != before.digest() {
			t.Errorf("clip %t: weights or moments changed in a step that was skipped", !noClip)
		}
		got := mustRun(t, tr)
		for i, line := range got.steps {
			if skipped := strings.HasSuffix(line, "true"); skipped != (i < 2) {
				t.Errorf("clip %t: step %s: skipped %t", !noClip, line, skipped)
			}
		}
		last := tr
		last.spoil = nil
		before.end = State{Step: 2}
		last.start = &before
		want := mustRun(t, last)
		if got.digest() != want.digest() {
			t.Errorf("clip %t: after two skipped steps the run ends otherwise than one without them", !noClip)
		}
		if len(got.steps) != 4 || !slices.Equal(got.steps[2:], want.steps) {
			t.Errorf("clip %t: steps %v, want the last to be %v", !noClip, got.steps, want.steps)
		}
	}
}

// TestNonFiniteRunsNameTheLayer: after max_nonfinite_steps skipped steps in a row, the run fails.
// Its error names the first layer with a non-finite output.
func TestNonFiniteRunsNameTheLayer(t *testing.T) {
	for layer := range 5 {
		if layer == 0 || layer == 4 {
			continue // no batch may use some rows of the embedding; the head has no output
		}
		for i, noClip := range []bool{false, true, true, false} {
			tr := base()
			tr.shards = i // the last two have a head in parts, and the last has them on several lanes
			for seed := int64(1); i == 3 && tr.head == nil; seed++ {
				tr.copyTiles = true
				tr = tr.withLanes(3, seed)
			}
			tr.noClip, tr.depths = noClip, plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 1, ActivationSlots: 3, BatchesAhead: 1}
			tr.steps, tr.maxNonFinite, tr.spoil = 10, 2, spoilWeights(layer)
			_, err := tr.run(t)
			if err == nil || !strings.HasPrefix(err.Error(), "step 2: ") || !strings.Contains(err.Error(), "2 steps in a row") {
				t.Fatalf("layer %d: %v", layer, err)
			}
			var at *NonFiniteError
			if !errors.As(err, &at) || at.Step != 2 || at.Finite != 0 {
				t.Errorf("the error does not tell the steps: %+v", at)
			}
			if want := "that of layer " + string(rune('0'+layer)); !strings.Contains(err.Error(), want) {
				t.Errorf("layer %d is spoiled; the error says: %v", layer, err)
			}
		}
	}
}

// TestNonFiniteExpertsAreNamed: a block with experts is two layers, which the error distinguishes.
func TestNonFiniteExpertsAreNamed(t *testing.T) {
	testkit.NotShort(t)
	for layer, want := range map[int]string{1: "layer 1 (attention of block 0)", 2: "layer 2 (experts of block 0)", 3: "layer 3 (block 1), micro-batch",
		5: "layer 5 (experts of block 2)"} {
		tr := base()
		tr.experts, tr.chosen, tr.copyTiles, tr.onDemand, tr.aux = 4, 2, true, true, true
		tr.steps, tr.maxNonFinite, tr.spoil = 10, 2, spoilWeights(layer)
		_, err := tr.run(t)
		if err == nil || !strings.HasPrefix(err.Error(), "step 2: ") || !strings.Contains(err.Error(), "that of "+want) {
			t.Errorf("layer %d is spoiled; the error says: %v", layer, err)
		}
	}
}

// TestNonFiniteGradientWithoutClippingEndsTheRun: without clipping, layers are updated before all
// gradients are known. A non-finite gradient then cannot skip the step, so the run ends.
func TestNonFiniteGradientWithoutClippingEndsTheRun(t *testing.T) {
	tr := base()
	tr.noClip = true
	tr.lr = func(int) float64 { return 1e-2 }
	tr.spoil = tr.spoilGradient
	_, err := tr.run(t)
	if err == nil {
		t.Fatal("the run succeeded")
	}
	var at *NonFiniteError
	if !errors.As(err, &at) || at.Step != 1 || at.Finite != 0 {
		t.Errorf("the error does not tell the steps: %+v", at)
	}
	if want := "the gradient of layer 1 is not finite"; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "max_grad_norm > 0") {
		t.Errorf("the error names neither the layer nor a way out: %v", err)
	}
}

// TestNonFiniteGradientWithClippingIsSkipped: the losses are finite but a gradient is not. With
// clipping, the non-finite norm makes the Optimizer skip the step.
func TestNonFiniteGradientWithClippingIsSkipped(t *testing.T) {
	tr := base()
	tr.steps, tr.maxNonFinite = 2, 5
	tr.spoil = tr.spoilGradient
	unmoved := tr
	unmoved.steps = 0
	want := testkit.Must(unmoved.run(t))(t)
	got := mustRun(t, tr)
	for _, line := range got.steps {
		if loss := lossOf(t, line); math.IsNaN(loss) || math.IsInf(loss, 0) || !strings.HasSuffix(line, "true") {
			t.Errorf("step %s: its loss is %v, and it should be skipped for its norm", line, loss)
		}
	}
	if got.digest() != want.digest() {
		t.Error("weights or moments moved")
	}
	if got.end.Step != 2 || got.end.AdamStep != 0 {
		t.Errorf("after two skipped steps: %+v", got.end)
	}
}

// spoilGradient scales weights so that losses stay finite and the gradient of layer 1 does not. The input of the output
// projection is about 1e36, and the projection scales it back. Its gradient is that input times an incoming gradient,
// which a steep head makes a million times too large.
func (tr trial) spoilGradient(s *host.Store) {
	c := tr.config()
	firstValue := (c.NumHeads + c.NumKVHeads) * c.HeadDim
	scaleRows(s.Layers[1], model.RoleQKV, firstValue, 1e36)
	scaleRows(s.Layers[1], model.RoleO, 0, 1e-36)
	scaleRows(s.Layers[len(s.Layers)-1], model.RoleLMHead, 0, 1e7)
}

// scaleRows multiplies rows first, first+1, … of the parameter with this role by `by`.
func scaleRows(l *host.LayerState, role model.Role, first int, by float32) {
	for k, tl := range l.Layout.Tensors {
		if tl.Role != role {
			continue
		}
		row := make([]float32, tl.Cols)
		for r := first; r < tl.Rows; r++ {
			l.ReadRows(k, r, 1, row)
			for i := range row {
				row[i] *= by
			}
			l.WriteRows(k, r, 1, row)
		}
	}
}

// TestBatchLargerThanLimitsIsRefused: a batch with more tokens than the plan's limits, from which
// buffers are sized, ends the run with an error.
func TestBatchLargerThanLimitsIsRefused(t *testing.T) {
	tr := base()
	tr.batch = func(_ int, b *data.Batch) { b.Tokens = 1 << 40 }
	if _, err := tr.run(t); err == nil || !strings.Contains(err.Error(), "exceeds the limits") {
		t.Fatalf("got %v", err)
	}
}
