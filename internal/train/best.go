package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"mt/actors"
	"mt/checkpoint"
)

// bests follows the evaluations of a run, for save_best and early stopping. The pipeline
// asks whether an evaluation was the last (enough) before it is reported (report), and on
// another goroutine, so each has an account of its own; both see the same evaluations in
// the same order.
type bests struct {
	patience  int // 0: no early stopping
	threshold float64
	asked     checkpoint.Best
	reported  checkpoint.Best
}

// begin takes up the accounts where a run goes on from.
func (b *bests) begin(from checkpoint.Best) { b.asked, b.reported = from, from }

// enough says whether a run ends with an evaluation.
func (b *bests) enough(r actors.EvalReport) bool {
	b.asked.Add(r.Step, r.Loss, b.threshold)
	return b.over(b.asked)
}

func (b *bests) report(r actors.EvalReport) { b.reported.Add(r.Step, r.Loss, b.threshold) }

// over says whether early stopping ends a run that stands so.
func (b *bests) over(at checkpoint.Best) bool { return b.patience > 0 && at.Since >= b.patience }

// beginBests takes up what the evaluations before the checkpoint have come to, and that of
// its step where metrics.jsonl has it. Where the checkpoint of the lowest loss is not here
// any more, as in another output directory, the account begins anew.
func (s *session) beginBests() {
	c, at := s.c, s.from.state.Best
	if !weighs(s.c) {
		return
	}
	if s.from.other || s.from.state.DataPos == 0 { // DataPos: reset_data
		at = checkpoint.Best{}
	}
	if s.lastEval.Step > 0 {
		at.Add(s.lastEval.Step, s.lastEval.Loss, c.EarlyStoppingThreshold)
	}
	if dir := filepath.Join(c.OutputDir, checkpointName(at.Step)); c.SaveBest && at.Step > 0 {
		if _, err := os.Stat(dir); err != nil {
			s.late.add(fmt.Sprintf("save_best: %s, which had the lowest eval_loss, is not there any more (%v): the lowest is that of the evaluations from here on", dir, err))
			at = checkpoint.Best{}
		}
	}
	s.bests.begin(at)
	s.saver.isBest(at.Step)
}

// endsEarly tells whether early stopping has ended the run before max_steps.
func (s *session) endsEarly() bool {
	return s.lastStep < s.c.MaxSteps && s.bests.over(s.bests.reported)
}

// sayEnd says what early stopping and save_best make of a run that is done.
func (s *session) sayEnd() {
	b := s.bests.reported
	if s.endsEarly() {
		fmt.Fprintf(s.o.Stdout, "early stopping: the run ends after step %d of %d, since the last %d evaluations did not lower eval_loss", s.lastStep, s.c.MaxSteps, b.Since)
		if t := s.c.EarlyStoppingThreshold; t > 0 {
			fmt.Fprintf(s.o.Stdout, " by more than %v", t)
		}
		fmt.Fprintln(s.o.Stdout)
	}
	switch {
	case b.Step == 0 || !s.c.SaveBest && !s.endsEarly():
	case !s.c.SaveBest && b.Step != s.lastStep:
		fmt.Fprintf(s.o.Stdout, "the lowest eval_loss was %.4f after step %d; the model is that of step %d (save_best: true keeps the best)\n", b.Loss, b.Step, s.lastStep)
	case s.c.SaveBest:
		fmt.Fprintf(s.o.Stdout, "the model is that of step %d, whose eval_loss of %.4f is the lowest\n", b.Step, b.Loss)
	}
}

// modelStep is the step whose weights become the final model.
func (s *session) modelStep() int {
	if b := s.bests.reported; s.c.SaveBest && b.Step > 0 {
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
	dir := filepath.Join(s.c.OutputDir, checkpointName(step))
	if err := s.loadBest(dir); err != nil {
		return fmt.Errorf("save_best: the weights of the best evaluation: %w; restore them, or take those of the last step with save_best: false", err)
	}
	s.lastEval = actors.EvalReport{Step: step, Loss: s.bests.reported.Loss, Tokens: s.lastEval.Tokens}
	return nil
}

// loadBest fills the store with the weights of the checkpoint dir, which rank 0 sends where not all
// ranks see it.
func (s *session) loadBest(dir string) (err error) {
	at := resume{dir: dir, local: dir}
	if s.team.first() {
		err = checkpoint.Verify(dir)
	}
	if err == nil && s.team.Size() > 1 {
		err = s.sight(&at)
	}
	if err == nil && !s.team.first() && !at.sent {
		err = checkpoint.Verify(at.local)
	}
	var bad *doesNotLoad
	switch {
	case err != nil:
	case at.sent:
		beside := checkpoint.LowerHalves
		if s.c.SaveOnlyModel {
			beside = checkpoint.Nothing
		}
		if err = s.receive(dir, beside); errors.As(err, &bad) {
			err = bad.err // no other checkpoint can take its place
		}
	case s.c.SaveOnlyModel:
		_, err = checkpoint.LoadModel(at.local, checkpointLayers(s.store), s.model.VocabSize, nil)
	default:
		_, err = checkpoint.LoadWeights(at.local, checkpointLayers(s.store), nil)
	}
	return err
}

// endState is the state of the run for endFile: at is that after the last step.
func (s *session) endState(at checkpoint.TrainerState) checkpoint.TrainerState {
	if !weighs(s.c) {
		return at // the model is that of its last step, as always
	}
	at.Ended = checkpoint.Ended{Model: s.modelStep(), Best: s.bests.reported, Early: s.endsEarly()}
	return at
}
