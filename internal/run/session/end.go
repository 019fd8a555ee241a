package session

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"mt/actors"
	"mt/checkpoint"
	"mt/internal/machine"
	"mt/internal/run/settings"
	"mt/internal/run/team"
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
	dir := filepath.Join(s.Config.OutputDir, settings.CheckpointName(saved.Step))
	if saved.Step > s.From.State.Step {
		s.line.Above(fmt.Sprintf("step %d of %d is saved in %s", saved.Step, s.Config.MaxSteps, dir))
	}
	switch {
	case s.Config.SaveStrategy == "no":
		return fmt.Errorf("%w; with save_strategy: no nothing is kept, and the same command begins again", settings.ErrInterrupted)
	case saved.ModelOnly:
		return fmt.Errorf("%w; with save_only_model the run cannot be resumed, but another can train from the weights in %s", settings.ErrInterrupted, dir)
	case s.evalOwed():
		s.line.Above(fmt.Sprintf("the evaluation of step %d was cut off and comes first when the run goes on", s.lastStep))
	case s.samplesOwed():
		s.line.Above(fmt.Sprintf("the samples of step %d were cut off and come first when the run goes on", s.lastStep))
	}
	return settings.ErrResumable
}

// begun is what rank 0 has found in output_dir, which the others need to know.
type begun struct {
	EvalStep   int             `json:"eval_step"`   // of the last evaluation
	EvalLoss   uint64          `json:"eval_loss"`   // the bits of its loss, which may not be finite
	EvalTokens int64           `json:"eval_tokens"` // that it is of
	Sampled    int             `json:"sampled"`     // the step of the last samples
	Bests      checkpoint.Best `json:"bests"`
}

// agreeOnOutput tells all ranks what rank 0 has found in output_dir.
func (s *session) agreeOnOutput() error {
	t := s.Team
	all, err := team.Tell(t, "the output directory", begun{EvalStep: s.lastEval.Step, EvalLoss: math.Float64bits(s.lastEval.Loss), EvalTokens: s.lastEval.Tokens,
		Sampled: s.samples.last, Bests: s.bests.Reported})
	if err != nil {
		return err
	}
	if first := all[0]; !t.First() {
		s.lastEval = actors.EvalReport{Step: first.EvalStep, Loss: math.Float64frombits(first.EvalLoss), Tokens: first.EvalTokens}
		if len(s.Prompts) > 0 {
			s.samples = samples{every: s.Config.SampleSteps.Of(s.Config.MaxSteps), prompts: s.Prompts, last: first.Sampled}
		}
		s.bests.Begin(first.Bests)
	}
	return nil
}

// saveAsItIs writes a checkpoint of the state after the last step, with the pipeline at
// rest, unless there is one or the keys say that none is written.
func (s *session) saveAsItIs() error { return s.saver.Save(s.reached, s.Train.Pos(s.lastStep)) }

// leavePinned says whether the process ends with the run, which ended with err: then nothing is copied to or from a GPU any
// more. After an error everything is given back.
func (s *session) leavePinned(err error) bool {
	var gaveUp *actors.GivenUpError
	switch {
	case !s.o.ProcessEnds || machine.Emulated(): // an emulator wants everything back
		return false
	case err != nil:
		return errors.As(err, &gaveUp)
	}
	return s.halted.Err() != nil || (s.lastStep >= s.Config.MaxSteps || s.endsEarly()) && !s.samplesOwed()
}
