package actors

import "fmt"

// A step over long rows can take many minutes, so a run that must stop can also be asked to abort the step in progress
// (Options.AbortStep). Until the step updates its first layer, weights and state are unchanged, so an abort loses only
// the step. After the first update, the step runs to its end. The device still completes the launches that are already
// enqueued before Run returns.

// StepAbortedError is the error of a run that has aborted a step or, with Eval, an evaluation. Reached is the state of
// training at the end: the run's Home has the layers in this state.
type StepAbortedError struct {
	Reached State
	Eval    bool
}

func (e *StepAbortedError) Error() string {
	if e.Eval {
		return fmt.Sprintf("the evaluation of step %d was given up", e.Reached.Step)
	}
	return fmt.Sprintf("step %d was given up", e.Reached.Step+1)
}

// abortStep begins to abort the step in progress. If that step is closed (its loss is known), it asks the Optimizer to
// drop the step. A run with several ranks does not abort steps.
func (c *conductorCore) abortStep() []effect {
	if c.distributed || c.diagnosis != nil {
		return nil // ranks end together, and a failing run ends soon
	}
	c.stop, c.aborting = true, true
	if c.updated == c.version {
		return nil
	}
	return []effect{send{optimizerID, StepAbortRequested{Step: c.version}}}
}

// stepDropped handles the Optimizer's answer that it will not update step m.Step. It undoes what the Conductor recorded
// when the step was closed, such as its tokens.
func (c *conductorCore) stepDropped(m StepDropped) {
	s := c.open[m.Step]
	delete(c.open, m.Step)
	c.tokens -= s.report.Tokens
	if s.report.Saved { // no layer is updated, so the checkpoint of this step would never get all of its layers
		c.saving--
	}
	c.version, c.dropped = c.updated, true
}

// endAborted ends a run that was asked to abort, without the step in progress. The Reporter
// delivers all reports that are left, and awaitReports then ends the run. The result is nil, and
// endAborted is called again later, while the Optimizer may still update a closed step or a
// checkpoint is in progress.
func (c *conductorCore) endAborted() []effect {
	if !c.aborting || c.updated < c.version || c.saving > 0 || !c.dropped && c.program == nil {
		return nil
	}
	c.abortErr = &StepAbortedError{Reached: State{Step: c.version, AdamStep: c.adam, NonFinite: c.nonFinite, Tokens: c.tokens}, Eval: c.program != nil && c.program.Eval}
	return []effect{send{reporterID, flushReports{}}}
}

// awaitReports ends an aborted run when the Reporter has delivered all reports. If an actor fails before, the run ends
// with that error. All other messages are ignored.
func (c *conductorCore) awaitReports(msg message) []effect {
	switch m := msg.(type) {
	case reported:
		return c.finish(c.abortErr)
	case Failed:
		return c.finish(m.Err)
	}
	return nil
}

// abortStep drops the step in progress if no layer's update has begun; otherwise it returns nil. The Optimizer forgets
// the message that closed the step, and the Conductor never sends another. Without that message, no layer is updated.
func (c *optimizerCore) abortStep(m StepAbortRequested) []effect {
	if s := c.cur; s == nil || s.step != m.Step || s.begun {
		return nil
	}
	c.cur.closed = nil
	return []effect{send{conductorID, StepDropped(m)}}
}
