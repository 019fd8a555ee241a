package actors

import (
	"fmt"

	"mt/data"
	"mt/schedule"
)

// Pass is one pass over the layers with the batch that goes through them: the
// program it follows, and its place in the run.
type Pass struct {
	*schedule.Program
	Seq     int // its number: passes are counted from 0
	Step    int // the training step it belongs to; for an evaluation the step it follows
	Eval    bool
	Check   bool // diagnosis: look for non-finite values after every launch
	Version int  // the version of the weights that it needs, counted in steps taken
	Batch   *data.Batch
	Waited  Cause // what the Conductor waited for before it could plan it
}

// lateInput is why the input of a launch can be late: it comes from another lane or, as always
// in the backward, from the host.
func (p *Pass) lateInput(l schedule.Launch) Cause {
	if p.Objects[l.In].From >= 0 && p.Visits[l.Visit].Phase != schedule.Backward {
		return StallPassage
	}
	return StallActivation
}

// lateGrad is why the gradient that a launch reads can be late.
func (p *Pass) lateGrad(l schedule.Launch) Cause {
	if p.Objects[l.Grad].From >= 0 {
		return StallPassage
	}
	return StallActivation
}

func (p *Pass) String() string {
	what := fmt.Sprintf("pass %d step %d eval %t", p.Seq, p.Step, p.Eval)
	if p.Program == nil {
		return what
	}
	return fmt.Sprintf("%s visits %d launches %d", what, len(p.Visits), len(p.Launches))
}
