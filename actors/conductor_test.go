package actors

import (
	"testing"

	"mt/data"
)

// TestEvaluationIsReportedAfterItsStep: the loss of an evaluation may land
// before the word that the step's last update is done; reports keep the order.
func TestEvaluationIsReportedAfterItsStep(t *testing.T) {
	batch := &data.Batch{Supervised: 1, Tokens: 2}
	c := newConductorCore(Schedule{FirstStep: 1, LastStep: 2, EvalSteps: 1, EvalPasses: 1, MaxNonFinite: 1, NoSave: true,
		LR: func(int) float64 { return 1 }, DataPos: func(int) int64 { return 0 }}, State{}, 1, programSpec{layers: dense(3), weightSlots: 1, activationSlots: 3})
	c.program = &Program{Step: 1, Batch: batch}
	var reports []any
	for _, m := range []any{LossLanded{Step: 1, Sum: 1}, nil, LossLanded{Step: 1, Eval: true, Sum: 1}, StepUpdated{Step: 1}} {
		if m == nil { // the evaluation has begun
			c.program, c.eval.pass = &Program{Step: 1, Eval: true, Batch: batch}, 1
			continue
		}
		for _, e := range c.step(m) {
			if s, ok := e.(send); ok && s.to == reporterID {
				reports = append(reports, s.msg)
			}
		}
	}
	if len(reports) != 2 {
		t.Fatalf("%d reports: %v", len(reports), reports)
	}
	if _, ok := reports[0].(StepReport); !ok {
		t.Errorf("the first report is %T", reports[0])
	}
	if r, ok := reports[1].(EvalReport); !ok || r.Step != 1 {
		t.Errorf("the second report is %+v", reports[1])
	}
}
