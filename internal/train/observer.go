package train

import "mt/actors"

// Observer is told what happens in a run, on one goroutine. No method returns an error: an observer
// that fails has a note, and the run goes on.
type Observer interface {
	Step(seenStep)
	Eval(seenEval)
	Note(text string)
	End(err error) // how the run has ended; nil: well
}

// seenStep is a step that was made.
type seenStep struct {
	Report  actors.StepReport
	Metrics stepMetrics
	Logged  bool // metrics.jsonl has it
}

// seenEval is what came of a model that was looked at between steps: its held-out loss, or samples of what it writes.
type seenEval struct {
	Report  actors.EvalReport
	Metrics *evalMetrics // nil: these are samples
	Samples []sampleLine
}

// Observers are told one after the other.
type Observers []Observer

// Step implements Observer.
func (all Observers) Step(s seenStep) {
	for _, o := range all {
		o.Step(s)
	}
}

// Eval implements Observer.
func (all Observers) Eval(e seenEval) {
	for _, o := range all {
		o.Eval(e)
	}
}

// Note implements Observer.
func (all Observers) Note(text string) {
	for _, o := range all {
		o.Note(text)
	}
}

// End implements Observer.
func (all Observers) End(err error) {
	for _, o := range all {
		o.End(err)
	}
}

// deaf hears nothing. Observers that want to be told of some things alone embed it.
type deaf struct{}

func (deaf) Step(seenStep) {}
func (deaf) Eval(seenEval) {}
func (deaf) Note(string)   {}
func (deaf) End(error)     {}
