package calibrate

import (
	"context"
	"time"

	"mt/actors"
	"mt/device"
	"mt/internal/measure"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/internal/run/trials"
	"mt/plan"
	"mt/plan/rates"
)

// This file measures what a CPU loses whenever it has stood still: until all of its cores are at
// work again, operations take up to twice as long. A run whose copies are slowed down, so that it
// waits for longer than it computes, shows it: the device computes the same as without waiting, and
// takes longer. A GPU's copies cannot be slowed down, so of a GPU nothing is known.

// waiting is the run: launches of some milliseconds.
var waiting = trained{layers: 4, hidden: 192, ffn: 512, heads: 3, vocab: 1000, rows: 4, length: 256, micro: 512}

const (
	waitingSteps   = 6
	waitingUntimed = 2   // at the begin of the run, where the pipeline fills
	standsStill    = 2   // how many times as long a step's copies take as the step without waiting
	mostRestart    = 5e4 // µs: the largest loss that is believed
)

// restart measures rates.Device.Restart, after all other rates.
func (r *run) restart(ctx context.Context) error {
	if r.o.Device.Kind() != "cpu" {
		return nil
	}
	t := waiting
	if r.o.Small {
		t = handing
		t.layers, t.rows = 2, 1
	}
	o, err := t.options(device.F32)
	if err != nil {
		return err
	}
	p, err := trials.PlanSynthetic(o)
	if err != nil {
		return err
	}
	step, err := predict.Predict(p, r.out)
	if err != nil {
		return err
	}
	o.Throttle = settings.Throttle{Link: float64(max(step.Report.H2D, step.Report.D2H)) / (standsStill * step.Step().Seconds())}
	p, reports, err := reportsOf(ctx, o, waitingSteps)
	if reports == nil { // nothing is known
		return err
	}
	var took []float64
	for _, report := range reports[waitingUntimed:] {
		took = append(took, computing(report).Seconds())
	}
	r.out.Device.Restart, err = restartFor(p, *o.Throttle.Machine(r.out), measure.Sum(took).Median)
	r.out.Device.Sources["restart_us"] = "of a short training run that stands still most of the time"
	return err
}

// restartFor is what a restart must cost, in µs, for a step of p to compute for so many seconds on m.
func restartFor(p *plan.Run, m rates.Machine, seconds float64) (float64, error) {
	return fitting(p, &m, &m.Device.Restart, mostRestart, computing, seconds)
}

// computing is how long the compute stream did not stand still.
func computing(r actors.StepReport) time.Duration { return r.Compute - stalled(r) }
