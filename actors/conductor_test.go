package actors

import (
	"math"
	"testing"

	"mt/data"
	"mt/layers/schedule"
)

// TestEvaluationIsReportedAfterItsStep: an evaluation's loss may reach the host before the message
// StepUpdated of its step. The step is still reported first.
func TestEvaluationIsReportedAfterItsStep(t *testing.T) {
	batch := &data.Batch{Supervised: 1, Tokens: 2}
	c := newConductorCore(Schedule{FirstStep: 1, LastStep: 2, EvalSteps: 1, EvalPasses: 1, MaxNonFinite: 1, NoSave: true,
		LR: func(int) float64 { return 1 }, DataPos: func(int) int64 { return 0 }}, State{}, 1, schedule.Spec{Layers: dense(3), WeightSlots: 1, ActivationSlots: 3})
	c.program = &Pass{Step: 1, Batch: batch}
	var reports []message
	for _, m := range []message{LossLanded{Step: 1, Sum: 1}, nil, LossLanded{Step: 1, Eval: true, Sum: 1}, StepUpdated{Step: 1}} {
		if m == nil { // the evaluation has begun
			c.program, c.eval.pass = &Pass{Step: 1, Eval: true, Batch: batch}, 1
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

// closing returns a Conductor at the point at which the losses of step 1 can land, so that the step
// is closed next.
func closing(start State) *conductorCore {
	c := newConductorCore(Schedule{FirstStep: 1, LastStep: 3, MaxNonFinite: 1, NoSave: true,
		LR: func(int) float64 { return 1 }, DataPos: func(int) int64 { return 0 }}, start, 1, schedule.Spec{Layers: dense(3), WeightSlots: 1, ActivationSlots: 3})
	c.program = &Pass{Step: 1, Batch: &data.Batch{Supervised: 2, Tokens: 5}}
	return c
}

// TestLossesThatSkipAStep: a non-finite loss or load-balancing loss of experts makes the Conductor
// skip the step's updates.
func TestLossesThatSkipAStep(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, m := range []struct {
		LossLanded
		skip bool
	}{
		{LossLanded{Sum: 3}, false}, {LossLanded{Sum: math.MaxFloat64}, false}, {LossLanded{Sum: 3, Aux: 4}, false},
		{LossLanded{Sum: nan}, true}, {LossLanded{Sum: inf}, true}, {LossLanded{Sum: -inf}, true},
		{LossLanded{Sum: 3, Aux: nan}, true}, {LossLanded{Sum: 3, Aux: inf}, true}, {LossLanded{Sum: inf, Aux: -inf}, true},
	} {
		m.Step = 1
		told := false
		for _, e := range closing(State{}).step(m.LossLanded) {
			if s, ok := e.(send); ok && s.to == optimizerID {
				told = true
				if got := s.msg.(StepClosed).Skip; got != m.skip {
					t.Errorf("loss %v and %v: skipped %t, want %t", m.Sum, m.Aux, got, m.skip)
				}
			}
		}
		if !told {
			t.Errorf("loss %v and %v: the step is not closed", m.Sum, m.Aux)
		}
	}
}

// TestReportedTokens: a report has the step's tokens, and all tokens so far, including those before a resume. The loss
// is the mean over supervised tokens.
func TestReportedTokens(t *testing.T) {
	c := closing(State{Tokens: 100})
	c.step(LossLanded{Step: 1, Sum: 3, Aux: 0.25})
	c.program = &Pass{Step: 2, Batch: &data.Batch{Supervised: 4, Tokens: 7}}
	c.step(LossLanded{Step: 2, Sum: 3})
	for step, want := range map[int]StepReport{
		1: {Loss: 1.75, Tokens: 5, Supervised: 2, TotalTokens: 105},
		2: {Loss: 0.75, Tokens: 7, Supervised: 4, TotalTokens: 112},
	} {
		got := c.open[step].report
		if got.Loss != want.Loss || got.Tokens != want.Tokens || got.Supervised != want.Supervised || got.TotalTokens != want.TotalTokens {
			t.Errorf("step %d: %+v, want %+v", step, got, want)
		}
	}
}

// TestStopSavesTheStepInProgress: a run that is stopped within a step saves that step's layers as
// they are updated, and does not save them again when no step is in progress.
func TestStopSavesTheStepInProgress(t *testing.T) {
	c := newConductorCore(Schedule{FirstStep: 1, LastStep: 9, MaxNonFinite: 1, LR: func(int) float64 { return 1 }, DataPos: func(int) int64 { return 0 }},
		State{}, 1, schedule.Spec{Layers: dense(3), WeightSlots: 1, ActivationSlots: 3})
	c.program = &Pass{Step: 1, Batch: &data.Batch{Supervised: 2, Tokens: 5}}
	var saves []effect
	for _, m := range []message{StopRequested{}, LossLanded{Step: 1, Sum: 1}, StepUpdated{Step: 1, AdamStep: 1}} {
		for _, e := range c.step(m) {
			switch m := e.(send).msg.(type) {
			case StepClosed:
				if !m.Save {
					t.Error("the layers of the last step are not saved as they are updated")
				}
			case SaveRequested:
				saves = append(saves, e)
				if m.AtRest {
					t.Error("the last step is saved at rest")
				}
			}
		}
	}
	if len(saves) != 1 {
		t.Errorf("saves: %v, want one", saves)
	}
}

// TestTokensOfAStepThatIsDropped: the final state counts neither the tokens nor the checkpoint of a step that was
// closed and then dropped.
func TestTokensOfAStepThatIsDropped(t *testing.T) {
	c := closing(State{Tokens: 100})
	c.plan.NoSave, c.plan.SaveSteps = false, 1
	c.step(LossLanded{Step: 1, Sum: 3})
	var end effect
	for _, m := range []message{AbortRequested{}, StepDropped{Step: 1}, reported{}} {
		for _, end = range c.step(m) {
			continue
		}
	}
	up, ok := end.(work).do.(runEnded).Err.(*StepAbortedError)
	if !ok || up.Reached != (State{Tokens: 100}) {
		t.Errorf("the run ends with %+v", end)
	}
}

// TestGivingUpWhileARunFails: a run that is failing, and searches for the first non-finite output
// (a diagnosis), ignores a request to abort and continues the search.
func TestGivingUpWhileARunFails(t *testing.T) {
	c := closing(State{})
	c.diagnosis = &diagnosis{}
	if c.step(AbortRequested{}); c.stop || c.aborting {
		t.Error("it is asked to stop")
	}
}

// TestLossesOfAStepThatIsGivenUp: a run was asked to abort its step but cannot end yet, because a
// checkpoint is in progress. If the step's losses land meanwhile, the step is not closed, so no
// layer is updated.
func TestLossesOfAStepThatIsGivenUp(t *testing.T) {
	c := closing(State{})
	c.saving = 1
	for _, m := range []message{AbortRequested{}, LossLanded{Step: 1, Sum: 1}} {
		if got := c.step(m); len(got) != 0 {
			t.Errorf("it does %v", got)
		}
	}
	if got := c.step(SaveDone{}); len(got) != 1 || got[0] != (effect(send{reporterID, flushReports{}})) {
		t.Errorf("when the checkpoint is there it does %v", got)
	}
}

// TestEvaluationsAreGivenUp: a request to abort during an evaluation ends the run, and the error
// says that an evaluation was aborted.
func TestEvaluationsAreGivenUp(t *testing.T) {
	c := closing(State{})
	c.program.Eval = true
	c.step(AbortRequested{})
	for step, want := range map[bool]string{true: "the evaluation of step 0 was given up", false: "step 1 was given up"} {
		if c.abortErr.Eval = step; c.abortErr.Error() != want {
			t.Errorf("%v, want %s", c.abortErr, want)
		}
	}
	c = closing(State{})
	c.program.Eval = true
	if c.step(AbortRequested{}); !c.abortErr.Eval {
		t.Error("a step is given up")
	}
}
