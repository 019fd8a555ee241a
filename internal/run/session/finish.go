package session

import (
	"context"
	"fmt"

	"mt/data"
	"mt/internal/generate"
	"mt/internal/run/answer"
	"mt/internal/run/settings"
)

// finish writes the model into the output directory and shows what was learned.
func (s *session) finish(ctx context.Context, extra map[string][]byte) error {
	c := s.Config
	if err := s.WriteAverage(s.lastStep, s.reached.AdamStep > 0, extra, s.o.Stdout); err != nil {
		return err
	}
	if err := s.takeBest(); err != nil {
		return err
	}
	if err := s.WriteFinal(s.lastStep, extra); err != nil || !s.Team.First() {
		return err
	}
	end, stopped := s.saver.Last, settings.ErrResumable
	if !s.resumable(end) {
		// There is no checkpoint to go on from, so what follows is done now or never.
		if s.evalOwed() {
			fmt.Fprintf(s.o.Stdout, "the run was stopped before the evaluation of step %d, which is left out\n", s.lastStep)
		}
		end, stopped = s.TrainerState(s.reached, s.Train.Pos(s.lastStep)), settings.ErrInterrupted
		if err := s.MarkFinished(s.endState(end)); err != nil {
			return fmt.Errorf("%s: %w", settings.EndFile, err)
		}
	}
	// A run that was killed after its last save has not pruned its checkpoints, and
	// this one may have had nothing left to save.
	s.saver.PruneLast(s.lastEval.Loss)
	s.tellNotes()
	s.sayEnd()
	if err := s.compare(); err != nil {
		return err
	}
	if c.SamplePrompt != "" && s.TokenizerErr == nil {
		fmt.Fprintf(s.o.Stdout, "\n--- sample ---\n%s", c.SamplePrompt)
		err := answer.Writer{In: s.Inputs, Device: s.devs[0], Store: s.Store}.Generate(ctx, generate.Options{MaxNewTokens: c.SampleMaxNewTokens, Temperature: c.SampleTemperature, TopK: c.SampleTopK, TopP: c.SampleTopP, Seed: c.Seed}, c.SamplePrompt, s.o.Stdout)
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

// compare prints the held-out loss beside that of a bigram model of the same
// text.
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
