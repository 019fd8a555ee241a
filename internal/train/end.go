package train

import (
	"errors"
	"fmt"
	"path/filepath"

	"mt/actors"
	"mt/checkpoint"
)

// after is the state after the step that r reports; was is the state before that step.
func after(was actors.State, r actors.StepReport) actors.State {
	now := actors.State{Step: r.Step, AdamStep: was.AdamStep + 1, Tokens: r.TotalTokens}
	if r.Skipped {
		now.AdamStep, now.NonFinite = was.AdamStep, was.NonFinite+1
	}
	return now
}

// resumable says whether the checkpoint that was saved last is that of the last step
// and a run can go on from it.
func (s *session) resumable(saved checkpoint.TrainerState) bool {
	return saved.Step == s.lastStep && !saved.ModelOnly
}

// interrupted is the error of a run that was stopped before its end. from is where it
// went on from, saved the state of its last checkpoint.
func (s *session) interrupted(saved checkpoint.TrainerState) error {
	dir := filepath.Join(s.c.OutputDir, checkpointName(saved.Step))
	if saved.Step > s.from.state.Step {
		s.line.above(fmt.Sprintf("step %d of %d is saved in %s", saved.Step, s.c.MaxSteps, dir))
	}
	switch {
	case s.c.SaveStrategy == "no":
		return fmt.Errorf("%w; with save_strategy: no nothing is kept, and the same command begins again", ErrInterrupted)
	case saved.ModelOnly:
		return fmt.Errorf("%w; with save_only_model the run cannot be resumed, but another can train from the weights in %s", ErrInterrupted, dir)
	case s.evalOwed():
		s.line.above(fmt.Sprintf("the evaluation of step %d was cut off and comes first when the run goes on", s.lastStep))
	case s.samplesOwed():
		s.line.above(fmt.Sprintf("the samples of step %d were cut off and come first when the run goes on", s.lastStep))
	}
	return ErrResumable
}

// nonFinite is the error of a run that gave up because steps were not finite.
// The checkpoints that may have broken weights, up to the one of step last, are
// marked, so that the next run goes on from one before them.
func (s *session) nonFinite(gave *actors.NonFiniteError, err error, last int) error {
	good, marked, failed := checkpoint.MarkNonFinite(s.fs(), s.c.OutputDir, gave.Finite, last, gave.Step)
	if failed != nil {
		return errors.Join(err, failed)
	}
	advice := fmt.Sprintf("lower learning_rate or look at the rows of steps %d to %d", gave.Finite+1, gave.Step)
	switch {
	case good != "" && modelOnly(good):
		return fmt.Errorf("%w; %s is the newest checkpoint that a later step has shown to be good, but with save_only_model no run can go on from it: %s, and "+
			"train from its weights with model_name_or_path: %s and another output_dir, or begin again with resume_from_checkpoint: false", err, good, advice, good)
	case good != "":
		return fmt.Errorf("%w; %s is the newest checkpoint that a later step has shown to be good, and the next run goes on from it: "+
			"unchanged it comes to the same end, so %s", err, good, advice)
	case len(marked) > 0:
		return fmt.Errorf("%w; no checkpoint in %s is known to be good, since no step after %d, that of %s, was finite: %s, and begin again with resume_from_checkpoint: false",
			err, s.c.OutputDir, gave.Finite, marked[len(marked)-1], advice)
	case s.from.state.Step > 0:
		return fmt.Errorf("%w; no step since %s was finite: name an earlier checkpoint in resume_from_checkpoint, or %s", err, s.from.dir, advice)
	}
	return fmt.Errorf("%w; no checkpoint was saved before: the next run begins at the first step, and unchanged it comes to the same end, so %s", err, advice)
}

// modelOnly tells whether the checkpoint in dir holds weights alone.
func modelOnly(dir string) bool {
	state, err := checkpoint.ReadState(dir)
	return err == nil && state.ModelOnly
}
