package predict

import (
	"cmp"
	"context"
	"fmt"
	"math"
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

// PredictedSteps is the number of predicted steps, and countedStep is the one that is reported. The second step waits
// for the updates of the first, and the fetches of the third overlap with it, as in the middle of a run.
const PredictedSteps, countedStep = 3, 2

// Prediction is the prediction of one step in the middle of a run.
type Prediction struct {
	Report actors.StepReport
	// Use is the time in seconds for which each resource is fully used.
	Use virtual.Use
	// Counted is the model's FLOPs of the step; Executed also includes recomputation.
	Counted, Executed float64
}

// Step returns the step's duration.
func (p *Prediction) Step() time.Duration { return p.Report.Elapsed }

// Predict predicts a step of r on machine m, with full rows of random tokens.
func Predict(r *plan.Run, m *rates.Machine) (*Prediction, error) {
	return Predicting{Batch: FullBatch(r)}.Predict(context.Background(), r, m)
}

// PredictTimes predicts the operations of PredictedSteps steps of r on machine m, with full rows of random tokens.
// With several lanes it returns the last lane's operations.
func PredictTimes(r *plan.Run, m *rates.Machine) ([]wrap.OpTime, error) {
	var timed *wrap.Profiled
	_, err := Predicting{Batch: FullBatch(r), wrap: func(d device.Device) device.Device {
		timed = wrap.Profile(d)
		return timed
	}}.Predict(context.Background(), r, m)
	if err != nil {
		return nil, err
	}
	return timed.Times()
}

// Predicting configures a prediction.
type Predicting struct {
	Batch *data.Batch                       // the same in every step
	to    *timeline.Recorder                // nil: no timeline
	wrap  func(device.Device) device.Device // wraps the device; nil: no wrapper
	limit float64                           // seconds; a step that takes longer has an empty report; 0: no limit
}

// Predict predicts a step of r on machine m. If ctx is cancelled, it returns ctx's error soon. A
// timeline or a wrapped device gets all PredictedSteps steps; otherwise the prediction ends with the
// step that counts.
func (how Predicting) Predict(ctx context.Context, r *plan.Run, m *rates.Machine) (*Prediction, error) {
	var p Prediction
	var before virtual.Use
	norm := 0.0
	if r.Clip {
		norm = 1
	}
	err := actors.Predict(ctx, actors.Options{Plan: r, MaxGradNorm: norm, Timeline: how.to, Wrap: how.wrap,
		Schedule: actors.Schedule{FirstStep: 1, LastStep: PredictedSteps, MaxNonFinite: 1, NoSave: true,
			LR: func(int) float64 { return 0 }, DataPos: func(int) int64 { return 0 }},
		Batch: func(int, bool) (*data.Batch, error) { return how.Batch, nil }},
		m, func(s actors.StepReport, used virtual.Use) (seconds float64) {
			if s.Step == countedStep {
				p.Report, p.Use = s, used.Since(before)
			}
			before = used
			switch {
			case how.to != nil || how.wrap != nil:
				return math.Inf(1)
			case s.Step == countedStep:
				return 0
			}
			return cmp.Or(how.limit, math.Inf(1))
		})
	if err != nil {
		return nil, fmt.Errorf("predict a step: %w", err)
	}
	if p.Report.Step == 0 { // too slow
		return &p, nil
	}
	p.Counted, p.Executed = report.FLOPs(r)(p.Report.Tokens, p.Report.AttendedPairs, p.Report.AttendedAgain)
	return &p, nil
}

// FullBatch returns a batch of random tokens of the largest size that r allows.
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
