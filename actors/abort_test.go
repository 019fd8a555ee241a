package actors

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"mt/device"
	"mt/device/wrap"
	"mt/internal/testkit"
)

// calls wraps a device. The first operation after n calls of the device runs the function at, with
// which a test asks the run to stop in the middle of a step.
type calls struct {
	device.Device
	n    int64
	once sync.Once
	at   func()
	made func() int64
}

func (d *calls) Do(s device.Stream, o device.Op) {
	if d.made() >= d.n {
		d.once.Do(d.at)
	}
	d.Device.Do(s, o)
}

// Unwrap returns the wrapped device, so that device.Inner finds its optional methods.
func (d *calls) Unwrap() device.Device { return d.Device }

// TestStepsAreGivenUp asks runs at every point to abort their step. The run ends with the weights
// and moments that a step without pipelining (synchronous) has at the reached step, or completes a
// step whose updates have begun. It reports and saves only steps up to there.
func TestStepsAreGivenUp(t *testing.T) {
	for name, shape := range map[string]func(*trial){
		"clip":    func(*trial) {},
		"no clip": func(tr *trial) { tr.noClip, tr.depths.GradSlabs = true, 2 },
		"host":    func(tr *trial) { tr.onHost, tr.copyTiles = true, true },
		"muon":    func(tr *trial) { tr.muon, tr.bf16 = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.NotShort(t)
			t.Parallel()
			tr := base()
			tr.blocks, tr.rows, tr.steps = 2, 3, 4
			shape(&tr)
			want := testkit.Must(tr.synchronous(t))(t)
			given, every := 0, int64(7*testkit.Every(t, 12))
			for n := drawCall(t, every); ; n += every {
				tr, stop := tr, make(chan struct{})
				saver := &keeper{layers: tr.blocks + 2}
				tr.abortStep, tr.saver, tr.saveSteps = stop, saver, 2
				var counted *wrap.Failing
				tr.wrap = func(d device.Device) device.Device {
					counted = wrap.Fail(d, 0)
					return &calls{Device: counted, n: n, at: func() { close(stop) }, made: counted.Calls}
				}
				got, err := tr.run(t)
				reached := len(got.steps)
				var up *StepAbortedError
				if errors.As(err, &up) {
					given++
					if err = nil; up.Reached.Step != reached || up.Reached.AdamStep != int64(reached) {
						t.Errorf("call %d: %+v is reached, and %d steps are reported", n, up.Reached, reached)
					}
				}
				testkit.NoError(t, err)
				if got.digest() != (outcome{state: want.versions[reached]}).digest() {
					t.Fatalf("call %d: other weights than after step %d", n, reached)
				}
				for _, k := range saver.kept {
					if k.end.Step > reached || k.digest() != (outcome{state: want.versions[k.end.Step]}).digest() {
						t.Errorf("call %d: step %d is reached, and the checkpoint of %d is not of that step", n, reached, k.end.Step)
					}
				}
				if counted.Calls() < n {
					break
				}
			}
			if given < 3 {
				t.Errorf("a step was given up %d times", given)
			}
		})
	}
}

// verifyGivenUp checks the simulated run w after the step that follows step reached was aborted.
// Every layer is at version reached, and all steps up to reached are reported.
func (w *world) verifyGivenUp(reached int) error {
	if len(w.steps) != reached || w.team != nil {
		return fmt.Errorf("given up after step %d, and %d were reported", reached, len(w.steps))
	}
	updates := reached
	for step := range w.cfg.skip {
		if step <= reached {
			updates--
		}
	}
	for l, v := range w.version {
		if v != updates || w.parts[l] != 0 {
			return fmt.Errorf("given up after step %d, and layer %d is at %d with %d parts of an update", reached, l, v, w.parts[l])
		}
	}
	if n := len(w.saves); n > 0 && w.saves[n-1] > reached {
		return fmt.Errorf("given up after step %d, and %d is saved", reached, w.saves[n-1])
	}
	return nil
}
