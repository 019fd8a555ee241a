package predict

import (
	"fmt"
	"math/rand/v2"
	"time"

	"mt/actors"
	"mt/base/timeline"
	"mt/data"
	"mt/device"
	"mt/device/virtual"
	"mt/device/wrap"
	"mt/internal/run/report"
	"mt/plan"
	"mt/plan/rates"
)

// A prediction makes PredictedSteps steps, of which the second counts: it waits for the updates
// of the step before it, and what the step after it fetches goes on beside it.
const PredictedSteps, countedStep = 3, 2

// Prediction is what a step in the middle of a run would take on a machine.
type Prediction struct {
	Report actors.StepReport
	// Use says for how long each resource was used up, in seconds.
	Use virtual.Use
	// Counted and Executed are the model's FLOPs of the step, and those with what is computed
	// again.
	Counted, Executed float64
}

// Step is how long the step takes.
func (p *Prediction) Step() time.Duration { return p.Report.Elapsed }

// Predict predicts a step of r on machine m, with full rows of random tokens.
func Predict(r *plan.Run, m *rates.Machine) (*Prediction, error) {
	return Predicting{Batch: FullBatch(r)}.Predict(r, m)
}

// PredictTimes predicts what the operations of PredictedSteps steps of r would take on
// machine m, with full rows of random tokens. Of several lanes it tells of the last.
func PredictTimes(r *plan.Run, m *rates.Machine) ([]wrap.OpTime, error) {
	var timed *wrap.Profiled
	_, err := Predicting{Batch: FullBatch(r), wrap: func(d device.Device) device.Device {
		timed = wrap.Profile(d)
		return timed
	}}.Predict(r, m)
	if err != nil {
		return nil, err
	}
	return timed.Times()
}

// Predicting says what a prediction is made with.
type Predicting struct {
	Batch *data.Batch                       // the same in every step
	to    *timeline.Recorder                // nil: nobody wants to know
	wrap  func(device.Device) device.Device // put around the device; nil: nothing
}

// Predict predicts a step of r on machine m.
func (how Predicting) Predict(r *plan.Run, m *rates.Machine) (*Prediction, error) {
	var p Prediction
	var before virtual.Use
	norm := 0.0
	if r.Clip {
		norm = 1
	}
	err := actors.Predict(actors.Options{Plan: r, MaxGradNorm: norm, Timeline: how.to, Wrap: how.wrap,
		Schedule: actors.Schedule{FirstStep: 1, LastStep: PredictedSteps, MaxNonFinite: 1, NoSave: true,
			LR: func(int) float64 { return 0 }, DataPos: func(int) int64 { return 0 }},
		Batch: func(int, bool) (*data.Batch, error) { return how.Batch, nil }},
		m, func(s actors.StepReport, used virtual.Use) {
			if s.Step == countedStep {
				p.Report, p.Use = s, used.Since(before)
			}
			before = used
		})
	if err != nil {
		return nil, fmt.Errorf("predict a step: %w", err)
	}
	p.Counted, p.Executed = report.FLOPs(r)(p.Report.Tokens, p.Report.AttendedPairs, p.Report.AttendedAgain)
	return &p, nil
}

// FullBatch is a batch of random tokens as large as r allows.
func FullBatch(r *plan.Run) *data.Batch {
	random := rand.New(rand.NewPCG(1, 1))
	rows := make([]data.Row, max(1, r.Ranks)*r.Limits.Tokens/r.RowTokens)
	for i := range rows {
		rows[i].IDs = make([]int32, r.RowTokens)
		for k := range rows[i].IDs {
			rows[i].IDs[k] = int32(random.IntN(r.Spec.Config.VocabSize))
		}
	}
	if r.Ranks > 1 {
		return data.NewRankBatch(1, rows, r.Limits.MicroBatchTokens, r.Rank, r.Ranks)
	}
	return data.NewBatch(1, rows, r.Limits.MicroBatchTokens)
}
