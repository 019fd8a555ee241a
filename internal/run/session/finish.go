package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"mt/actors"
	"mt/checkpoint"
	"mt/data"
	"mt/internal/run/generate"
	"mt/internal/run/machine"
	"mt/internal/run/ranks"
	"mt/internal/run/settings"
)

// finish writes the final model and prints the results. extra has the files beside the model, by name.
func (s *session) finish(ctx context.Context, extra map[string][]byte) error {
	c := s.Config
	if err := s.WriteAverage(s.lastStep, s.reached.AdamStep > 0, extra, s.o.Stdout); err != nil {
		return err
	}
	if err := s.takeBest(); err != nil {
		return err
	}
	if err := s.WriteFinal(s.lastStep, extra); err != nil || !s.Ranks.First() {
		return err
	}
	end, stopped := s.saver.Last, settings.ErrResumable
	if !s.resumable(end) {
		// No later process can resume the run without a checkpoint of its last step, so the run
		// counts as finished. An evaluation that a stop has prevented is left out.
		if s.evalOwed() {
			fmt.Fprintf(s.o.Stdout, "the run was stopped before the evaluation of step %d, which is left out\n", s.lastStep)
		}
		end, stopped = s.TrainerState(s.reached, s.Train.Pos(s.lastStep)), settings.ErrInterrupted
		if err := s.MarkFinished(s.endState(end)); err != nil {
			return fmt.Errorf("%s: %w", settings.EndFile, err)
		}
	}
	// If a process was killed after its last save, surplus checkpoints remain, and a restarted run may have nothing to
	// save.
	s.saver.PruneLast(s.lastEval.Loss)
	s.tellNotes()
	s.sayEnd()
	if err := s.compare(); err != nil {
		return err
	}
	if c.SamplePrompt != "" && s.TokenizerErr == nil {
		fmt.Fprintf(s.o.Stdout, "\n--- sample ---\n%s", c.SamplePrompt)
		err := generate.Writer{In: s.Inputs, Device: s.devs[0], Store: s.Store}.Generate(ctx, generate.Options{MaxNewTokens: c.SampleMaxNewTokens, Temperature: c.SampleTemperature, TopK: c.SampleTopK, TopP: c.SampleTopP, Seed: c.Seed}, c.SamplePrompt, s.o.Stdout)
		fmt.Fprintln(s.o.Stdout, "\n--------------")
		switch {
		case err != nil && ctx.Err() != nil:
			return stopped
		case err != nil:
			return err
		}
	}
	if err := s.log.Sync(); err != nil { // the last evaluation comes after the last save
		return err
	}
	if err := s.MarkFinished(s.endState(end)); err != nil {
		return fmt.Errorf("%s: %w", settings.EndFile, err)
	}
	s.DropCheckpoints()
	s.tellNotes()
	fmt.Fprintf(s.o.Stdout, "model written to %s\n", c.OutputDir)
	return nil
}

// compare prints the held-out loss, and beside it the loss of a bigram model on the same text.
func (s *session) compare() error {
	if !s.Config.CompareBigram || s.Eval == nil || s.lastEval.Step != s.modelStep() {
		return nil
	}
	bigram, err := data.BigramLoss(s.Data.Train(), s.EvalView)
	if err != nil {
		return fmt.Errorf("compare_bigram: %w", err)
	}
	fmt.Fprintf(s.o.Stdout, "held-out loss %.4f nats per token; a bigram model of the same text reaches %.4f\n", s.lastEval.Loss, bigram)
	return nil
}

// after returns the state of training after the step that r reports. `was` is the state before that
// step. A skipped step does not count as an update (AdamStep).
func after(was actors.State, r actors.StepReport) actors.State {
	now := actors.State{Step: r.Step, AdamStep: was.AdamStep + 1, Tokens: r.TotalTokens}
	if r.Skipped {
		now.AdamStep, now.NonFinite = was.AdamStep, was.NonFinite+1
	}
	return now
}

// resumable reports whether a later process can go on after the last step. That needs a checkpoint, with the state
// saved, of this very step and with optimizer state.
func (s *session) resumable(saved checkpoint.TrainerState) bool {
	return saved.Step == s.lastStep && !saved.ModelOnly
}

// interrupted returns the error of a run that was stopped before its end. saved is the state of its last checkpoint.
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

// begun is rank 0's message about what an earlier process has left in output_dir, which the other ranks may not see.
type begun struct {
	EvalStep   int             `json:"eval_step"`   // step of the last evaluation
	EvalLoss   uint64          `json:"eval_loss"`   // bits of its loss, which may not be finite
	EvalTokens int64           `json:"eval_tokens"` // its tokens
	Sampled    int             `json:"sampled"`     // step of the last samples
	Best       checkpoint.Best `json:"bests"`
}

// agreeOnOutput sends what rank 0 found in output_dir to all ranks.
func (s *session) agreeOnOutput() error {
	t := s.Ranks
	all, err := ranks.Tell(t, "the output directory", begun{EvalStep: s.lastEval.Step, EvalLoss: math.Float64bits(s.lastEval.Loss), EvalTokens: s.lastEval.Tokens,
		Sampled: s.samples.last, Best: s.bestTracker.Reported})
	if err != nil {
		return err
	}
	if first := all[0]; !t.First() {
		s.lastEval = actors.EvalReport{Step: first.EvalStep, Loss: math.Float64frombits(first.EvalLoss), Tokens: first.EvalTokens}
		if len(s.Prompts) > 0 {
			s.samples = samples{every: s.Config.SampleSteps.Of(s.Config.MaxSteps), prompts: s.Prompts, last: first.Sampled}
		}
		s.bestTracker.Begin(first.Best)
	}
	return nil
}

// saveAsItIs saves a checkpoint of the state after the last step, outside of the pipeline's own saves. The pipeline
// must be idle.
func (s *session) saveAsItIs() error { return s.saver.Save(s.reached, s.Train.Pos(s.lastStep)) }

// restoreBest restores the record of evaluations from the checkpoint, plus its step's evaluation from metrics.jsonl.
// If the best checkpoint is missing, as in another output directory, the record starts anew.
func (s *session) restoreBest() {
	c, at := s.Config, s.From.State.Best
	if !settings.TracksBest(s.Config) {
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
			s.DeferredNotes.Add(fmt.Sprintf("save_best: %s, which had the lowest eval_loss, is not there any more (%v): the lowest is that of the evaluations from here on", dir, err))
			at = checkpoint.Best{}
		}
	}
	s.bestTracker.Begin(at)
	s.saver.IsBest(at.Step)
}

// endsEarly reports whether early stopping has ended the run before max_steps.
func (s *session) endsEarly() bool {
	return s.lastStep < s.Config.MaxSteps && s.bestTracker.Over(s.bestTracker.Reported)
}

// sayEnd tells the user at the run's end whether early stopping has ended it and which step save_best took.
func (s *session) sayEnd() {
	b := s.bestTracker.Reported
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

// modelStep returns the step whose weights become the final model.
func (s *session) modelStep() int {
	if b := s.bestTracker.Reported; s.Config.SaveBest && b.Step > 0 {
		return b.Step
	}
	return s.lastStep
}

// takeBest loads the weights of the best checkpoint for the final model. It does nothing if they are the weights of
// the last step.
func (s *session) takeBest() error {
	step := s.modelStep()
	if step == s.lastStep {
		return nil
	}
	dir := filepath.Join(s.Config.OutputDir, settings.CheckpointName(step))
	if err := s.LoadBest(dir); err != nil {
		return fmt.Errorf("save_best: the weights of the best evaluation: %w; restore them, or take those of the last step with save_best: false", err)
	}
	s.lastEval = actors.EvalReport{Step: step, Loss: s.bestTracker.Reported.Loss, Tokens: s.lastEval.Tokens}
	return nil
}

// endState returns the state that EndFile keeps. `at` is the state after the last step; the best evaluation is added if
// it decides something.
func (s *session) endState(at checkpoint.TrainerState) checkpoint.TrainerState {
	if !settings.TracksBest(s.Config) {
		return at // the model belongs to the last step
	}
	at.Ended = checkpoint.Ended{Model: s.modelStep(), Best: s.bestTracker.Reported, Early: s.endsEarly()}
	return at
}

// leavePinned reports whether host memory can stay pinned at the end of the run, because the process exits anyway.
// After most errors everything is freed. err is the run's error.
func (s *session) leavePinned(err error) bool {
	var gaveUp *actors.StepAbortedError
	switch {
	case !s.o.ProcessEnds || machine.Emulated(): // an emulator reports memory that is not freed as a fault
		return false
	case err != nil:
		return errors.As(err, &gaveUp)
	}
	return s.halted.Err() != nil || (s.lastStep >= s.Config.MaxSteps || s.endsEarly()) && !s.samplesOwed()
}
