package actors

import "fmt"

// A step of a long row may take many minutes. A run that has been asked to stop can be asked to give up the step in
// progress, too (Options.AbortStep). Until the first layer of a step is updated, weights and all that is kept beside them are those
// of the step before, and so they stay: nothing but the step is lost. Once one is updated, the step goes on to its end. What the
// device has begun, and what it was given ahead, it still does before Run returns.

// StepAbortedError is the error of a run that has given up its step or, with Eval, its evaluation in progress: the home of the layers has
// them as they are after Reached.
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

// abortStep has the step in progress given up.
func (c *conductorCore) abortStep() []effect {
	if c.distributed || c.diagnosis != nil {
		return nil // ranks end together, and a run that fails ends soon
	}
	c.stop, c.aborting = true, true
	if c.updated == c.version {
		return nil
	}
	return []effect{send{optimizerID, StepAbortRequested{Step: c.version}}}
}

// stepDropped takes back that a step was closed: the Optimizer will not update it.
func (c *conductorCore) stepDropped(m StepDropped) {
	s := c.open[m.Step]
	delete(c.open, m.Step)
	c.tokens -= s.report.Tokens
	if s.report.Saved { // none of its layers comes, so the checkpoint is never complete
		c.saving--
	}
	c.version, c.dropped = c.updated, true
}

// endAborted ends the run without the step in progress, if it is given up, none is closed that the Optimizer may still update, and no
// checkpoint is under way. First all that was reported before has to be told.
func (c *conductorCore) endAborted() []effect {
	if !c.aborting || c.updated < c.version || c.saving > 0 || !c.dropped && c.program == nil {
		return nil
	}
	c.abortErr = &StepAbortedError{Reached: State{Step: c.version, AdamStep: c.adam, NonFinite: c.nonFinite, Tokens: c.tokens}, Eval: c.program != nil && c.program.Eval}
	return []effect{send{reporterID, flushReports{}}}
}

// awaitReports is all that a run hears that is about to end without the step in progress.
func (c *conductorCore) awaitReports(msg message) []effect {
	switch m := msg.(type) {
	case reported:
		return c.finish(c.abortErr)
	case Failed:
		return c.finish(m.Err)
	}
	return nil
}

// abortStep takes back that the step in progress was closed, unless one of its layers is being updated or has been. The step is not
// closed again, so nothing is updated any more.
func (c *optimizerCore) abortStep(m StepAbortRequested) []effect {
	if s := c.cur; s == nil || s.step != m.Step || s.begun {
		return nil
	}
	c.cur.closed = nil
	return []effect{send{conductorID, StepDropped(m)}}
}
