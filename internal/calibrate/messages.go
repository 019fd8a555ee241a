package calibrate

import (
	"context"
	"fmt"
	"time"

	"mt/actors"
	"mt/internal/measure"
	"mt/internal/run/predict"
	"mt/plan"
	"mt/plan/rates"
)

// This file measures what a message between two actors takes: not between two that have nothing
// else to do, but in a run, where whoever is to read it may have to wait for a core. A small model
// is trained with the least depths, so that a tile goes to the device only when the one before it
// has been given back. The message takes what makes the stalls of that run be predicted as long as
// they were.

// handing is the run: layers and tiles so small that messages count.
var handing = trained{layers: 6, hidden: 96, ffn: 256, heads: 3, vocab: 400, rows: 4, length: 64, micro: 128}

const (
	handingSteps   = 12
	handingUntimed = 2     // at the begin of the run and at its end each, where the pipeline fills and runs empty
	mostMessage    = 1000. // µs: the longest message that is believed
)

// messages measures the time of a message, after all other rates.
func (r *run) messages(ctx context.Context) error {
	t := handing
	if r.o.Small {
		t.layers, t.rows = 2, 1
	}
	o, err := t.options(r.operands())
	if err != nil {
		return err
	}
	o.NoClip, o.Depths, o.On = true, plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 1}, r.o.Device
	p, reports, err := reportsOf(ctx, o, handingSteps)
	if reports == nil { // the time stays what it is elsewhere
		return err
	}
	var stalls []float64
	for _, report := range reports[handingUntimed : len(reports)-handingUntimed] {
		stalls = append(stalls, stalled(report).Seconds())
	}
	if r.out.Host.Message, err = messageFor(p, *r.out, measure.Sum(stalls).Median); err != nil {
		return err
	}
	r.out.Host.Sources["message_us"] = "of a short training run with the least depths"
	return nil
}

// stalled is how long the compute stream stood still.
func stalled(r actors.StepReport) (sum time.Duration) {
	for _, d := range r.Stall {
		sum += d
	}
	return sum
}

// messageFor is what a message must take, in µs, for a step of p to stand still for so many
// seconds on m.
func messageFor(p *plan.Run, m rates.Machine, seconds float64) (float64, error) {
	return fitting(p, &m, &m.Host.Message, mostMessage, stalled, seconds)
}

// fitting is the value, from 0 to most, of a field of m for which a step of p is predicted with what
// of says of its report nearest to so many seconds; they grow with the field.
func fitting(p *plan.Run, m *rates.Machine, field *float64, most float64, of func(actors.StepReport) time.Duration, seconds float64) (float64, error) {
	least := 0.0
	for range 20 {
		*field = (least + most) / 2
		predicted, err := predict.Predict(p, m)
		if err != nil {
			return 0, fmt.Errorf("predict what was measured: %w", err)
		}
		if of(predicted.Report).Seconds() < seconds {
			least = *field
		} else {
			most = *field
		}
	}
	return rates.Round((least + most) / 2), nil
}
