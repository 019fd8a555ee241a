package session

import (
	"fmt"
	"os"
	"path/filepath"

	"mt/actors"
	"mt/checkpoint"
	"mt/internal/run/settings"
)

// beginBests takes up what the evaluations before the checkpoint have come to, and that of
// its step where metrics.jsonl has it. Where the checkpoint of the lowest loss is not here
// any more, as in another output directory, the account begins anew.
func (s *session) beginBests() {
	c, at := s.Config, s.From.State.Best
	if !settings.Weighs(s.Config) {
		return
	}
	if s.From.Other || s.From.State.DataPos == 0 { // DataPos: reset_data
		at = checkpoint.Best{}
	}
	if s.lastEval.Step > 0 {
		at.Add(s.lastEval.Step, s.lastEval.Loss, c.EarlyStoppingThreshold)
	}
	if dir := filepath.Join(c.OutputDir, settings.CheckpointName(at.Step)); c.SaveBest && at.Step > 0 {
		if _, err := os.Stat(dir); err != nil {
			s.Late.Add(fmt.Sprintf("save_best: %s, which had the lowest eval_loss, is not there any more (%v): the lowest is that of the evaluations from here on", dir, err))
			at = checkpoint.Best{}
		}
	}
	s.bests.Begin(at)
	s.saver.IsBest(at.Step)
}

// endsEarly tells whether early stopping has ended the run before max_steps.
func (s *session) endsEarly() bool {
	return s.lastStep < s.Config.MaxSteps && s.bests.Over(s.bests.Reported)
}

// sayEnd says what early stopping and save_best make of a run that is done.
func (s *session) sayEnd() {
	b := s.bests.Reported
	if s.endsEarly() {
		fmt.Fprintf(s.o.Stdout, "early stopping: the run ends after step %d of %d, since the last %d evaluations did not lower eval_loss", s.lastStep, s.Config.MaxSteps, b.Since)
		if t := s.Config.EarlyStoppingThreshold; t > 0 {
			fmt.Fprintf(s.o.Stdout, " by more than %v", t)
		}
		fmt.Fprintln(s.o.Stdout)
	}
	switch {
	case b.Step == 0 || !s.Config.SaveBest && !s.endsEarly():
	case !s.Config.SaveBest && b.Step != s.lastStep:
		fmt.Fprintf(s.o.Stdout, "the lowest eval_loss was %.4f after step %d; the model is that of step %d (save_best: true keeps the best)\n", b.Loss, b.Step, s.lastStep)
	case s.Config.SaveBest:
		fmt.Fprintf(s.o.Stdout, "the model is that of step %d, whose eval_loss of %.4f is the lowest\n", b.Step, b.Loss)
	}
}

// modelStep is the step whose weights become the final model.
func (s *session) modelStep() int {
	if b := s.bests.Reported; s.Config.SaveBest && b.Step > 0 {
		return b.Step
	}
	return s.lastStep
}

// takeBest fills the store with the weights of the best checkpoint where those it has
// are not the best.
func (s *session) takeBest() error {
	step := s.modelStep()
	if step == s.lastStep {
		return nil
	}
	dir := filepath.Join(s.Config.OutputDir, settings.CheckpointName(step))
	if err := s.LoadBest(dir); err != nil {
		return fmt.Errorf("save_best: the weights of the best evaluation: %w; restore them, or take those of the last step with save_best: false", err)
	}
	s.lastEval = actors.EvalReport{Step: step, Loss: s.bests.Reported.Loss, Tokens: s.lastEval.Tokens}
	return nil
}

// endState is the state of the run for EndFile: at is that after the last step.
func (s *session) endState(at checkpoint.TrainerState) checkpoint.TrainerState {
	if !settings.Weighs(s.Config) {
		return at // the model is that of its last step, as always
	}
	at.Ended = checkpoint.Ended{Model: s.modelStep(), Best: s.bests.Reported, Early: s.endsEarly()}
	return at
}
