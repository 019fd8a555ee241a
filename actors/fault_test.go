package actors

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"mt/data"
	"mt/device"
	"mt/device/fault"
	"mt/host"
	"mt/layers"
	"mt/model"
	"mt/plan"
)

// small is a trial with few device calls that still spills, copies and
// evaluates.
func small() trial {
	return trial{blocks: 1, rows: 2, micro: 1, steps: 1, maxLen: 5, keep: layers.KeepNothing, threads: 1, copyTiles: true, evalSteps: 1,
		depths: plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 2, ActivationSlots: 3, BatchesAhead: 1}}
}

// TestEveryDeviceCallMayFail fails call 1, 2, 3, … until a run succeeds: every
// failing run returns that very error, and leaves no memory and no goroutine.
func TestEveryDeviceCallMayFail(t *testing.T) {
	for name, change := range map[string]func(*trial){
		"clip":    func(*trial) {},
		"no-clip": func(tr *trial) { tr.noClip, tr.tied, tr.bf16, tr.gradBF16 = true, true, true, true },
		"unified": func(tr *trial) { tr.copyTiles = false },
		"shards":  func(tr *trial) { tr.shards, tr.gradBF16 = 2, true },
		"experts": func(tr *trial) { tr.experts, tr.chosen, tr.onDemand, tr.aux = 3, 1, true, true },
		"experts-unified": func(tr *trial) {
			tr.copyTiles, tr.noClip, tr.experts, tr.chosen = false, true, 2, 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			hostBefore := host.Usage().Now
			failed := 0
			for call := int64(1); ; call++ {
				tr := small()
				change(&tr)
				var dev *fault.Device
				tr.wrap = func(d device.Device) device.Device {
					dev = fault.Wrap(d, call)
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
				var want *fault.Error
				if !errors.As(err, &want) || want.Call != call {
					t.Fatalf("call %d failed and the run's error is %v", call, err)
				}
				if strings.Contains(err.Error(), "goroutine") {
					t.Fatalf("call %d: the error is a trace: %v", call, err)
				}
				if host.Usage().Now != hostBefore {
					t.Fatalf("call %d (%v): host memory is left: %v", call, err, host.Usage().Now)
				}
			}
			if failed < 100 {
				t.Errorf("only %d calls failed: the run hardly used the device", failed)
			}
			settle(t, before)
		})
	}
}

// settle waits for the goroutines of finished runs to end.
func settle(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before+2 {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

// spoilWeights makes one weight of a layer not finite.
func spoilWeights(layer int) func(*host.Store) {
	return func(s *host.Store) {
		l := s.Layers[layer]
		row := make([]float32, l.Layout.Tensors[0].Cols)
		row[0] = float32(math.Inf(1))
		l.WriteRows(0, 0, 1, row)
	}
}

// TestNonFiniteStepsAreSkipped: a batch whose loss is not finite changes
// neither weights, nor moments, nor Adam's step count; the schedule goes on.
func TestNonFiniteStepsAreSkipped(t *testing.T) {
	for _, noClip := range []bool{false, true} {
		tr := base()
		tr.noClip, tr.maxNonFinite, tr.steps = noClip, 5, 3
		// An unsupervised batch divides by zero: its loss is 0, so spoil the
		// weights for one step instead and restore them before the next.
		want := mustRun(t, tr)
		spoiled := tr
		spoiled.steps = 2
		spoiled.spoil = spoilWeights(2)
		got, err := spoiled.run(t)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range got.steps {
			if !strings.HasSuffix(line, "true") {
				t.Errorf("clip %t: step %s was not skipped", !noClip, line)
			}
		}
		if got.end.AdamStep != 0 || got.end.Step != 2 {
			t.Errorf("clip %t: after two skipped steps: %+v", !noClip, got.end)
		}
		if len(want.steps) != 3 || want.end.AdamStep != 3 {
			t.Errorf("clip %t: the undisturbed run ended at %+v", !noClip, want.end)
		}
	}
}

// TestNonFiniteRunsNameTheLayer: after max_nonfinite_steps the run fails and
// says which layer's output is not finite first.
func TestNonFiniteRunsNameTheLayer(t *testing.T) {
	for layer := range 5 {
		if layer == 0 || layer == 4 {
			continue // the embedding has rows that no batch may use; the head has no output
		}
		for i, noClip := range []bool{false, true, true} {
			tr := base()
			tr.shards = i // the last has a head in parts
			tr.noClip, tr.depths = noClip, plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 1, ActivationSlots: 3, BatchesAhead: 1}
			tr.steps, tr.maxNonFinite, tr.spoil = 10, 2, spoilWeights(layer)
			_, err := tr.run(t)
			if err == nil || !strings.HasPrefix(err.Error(), "step 2: ") || !strings.Contains(err.Error(), "2 steps in a row") {
				t.Fatalf("layer %d: %v", layer, err)
			}
			if want := "that of layer " + string(rune('0'+layer)); !strings.Contains(err.Error(), want) {
				t.Errorf("layer %d is spoiled; the error says: %v", layer, err)
			}
		}
	}
}

// TestNonFiniteExpertsAreNamed: a block with experts is two layers, which the
// error tells apart.
func TestNonFiniteExpertsAreNamed(t *testing.T) {
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

// TestNonFiniteGradientWithoutClippingEndsTheRun: other layers are updated
// already, so nothing can be skipped.
func TestNonFiniteGradientWithoutClippingEndsTheRun(t *testing.T) {
	tr := base()
	tr.noClip = true
	tr.lr = func(int) float64 { return 1e-2 }
	// Values of 1e36 that the output projection takes back to size: the loss is
	// finite, but the projection's gradient is its input times what comes from a
	// head a million times too steep.
	tr.spoil = func(s *host.Store) {
		c := tr.config()
		firstValue := (c.NumHeads + c.NumKVHeads) * c.HeadDim
		scaleRows(s.Layers[1], model.RoleQKV, firstValue, 1e36)
		scaleRows(s.Layers[1], model.RoleO, 0, 1e-36)
		scaleRows(s.Layers[len(s.Layers)-1], model.RoleLMHead, 0, 1e7)
	}
	_, err := tr.run(t)
	if err == nil {
		t.Fatal("the run succeeded")
	}
	if want := "the gradient of layer 1 is not finite"; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "max_grad_norm > 0") {
		t.Errorf("the error names neither the layer nor a way out: %v", err)
	}
}

// scaleRows multiplies the rows of a parameter from first on.
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

// TestBatchLargerThanLimitsIsRefused: buffers are sized by the plan.
func TestBatchLargerThanLimitsIsRefused(t *testing.T) {
	tr := base()
	tr.batch = func(_ int, b *data.Batch) { b.Tokens = 1 << 40 }
	if _, err := tr.run(t); err == nil || !strings.Contains(err.Error(), "exceeds the limits") {
		t.Fatalf("got %v", err)
	}
}
