package train

import (
	"context"
	"fmt"

	"mt/data"
	"mt/internal/generate"
)

// finish writes the model into the output directory and shows what was learned.
func (s *session) finish(ctx context.Context, extra map[string][]byte) error {
	c := s.c
	if err := s.writeAverage(extra); err != nil {
		return err
	}
	if err := s.takeBest(); err != nil {
		return err
	}
	if !s.team.first() {
		return s.serveModel(lowerHalves)
	}
	if err := s.writeModel(c.OutputDir, lowerHalves, extra); err != nil {
		return err
	}
	end, stopped := s.saver.last, ErrResumable
	if !s.resumable(end) {
		// There is no checkpoint to go on from, so what follows is done now or never.
		if s.evalOwed() {
			fmt.Fprintf(s.o.Stdout, "the run was stopped before the evaluation of step %d, which is left out\n", s.lastStep)
		}
		end, stopped = s.trainerState(s.reached, s.train.Pos(s.lastStep)), ErrInterrupted
		if err := s.markFinished(s.endState(end)); err != nil {
			return fmt.Errorf("%s: %w", endFile, err)
		}
	}
	// A run that was killed after its last save has not pruned its checkpoints, and
	// this one may have had nothing left to save.
	s.saver.pruneLast(s.lastEval.Loss)
	s.tellNotes()
	s.sayEnd()
	if err := s.compare(); err != nil {
		return err
	}
	if c.SamplePrompt != "" && s.tokErr == nil {
		fmt.Fprintf(s.o.Stdout, "\n--- sample ---\n%s", c.SamplePrompt)
		err := writer{s.Inputs, s.devs[0], s.store}.generate(ctx, generate.Options{MaxNewTokens: c.SampleMaxNewTokens, Temperature: c.SampleTemperature, TopK: c.SampleTopK, TopP: c.SampleTopP, Seed: c.Seed}, c.SamplePrompt, s.o.Stdout)
		fmt.Fprintln(s.o.Stdout, "\n--------------")
		switch {
		case err != nil && ctx.Err() != nil:
			return stopped
		case err != nil:
			return err
		}
	}
	if err := s.log.sync(); err != nil { // the last evaluation comes after the last save
		return err
	}
	if err := s.markFinished(s.endState(end)); err != nil {
		return fmt.Errorf("%s: %w", endFile, err)
	}
	s.dropCheckpoints()
	s.tellNotes()
	fmt.Fprintf(s.o.Stdout, "model written to %s\n", c.OutputDir)
	return nil
}

// compare prints the held-out loss beside that of a bigram model of the same
// text.
func (s *session) compare() error {
	if !s.c.CompareBigram || s.eval == nil || s.lastEval.Step != s.modelStep() {
		return nil
	}
	bigram, err := data.BigramLoss(s.set.Train(), s.evalView)
	if err != nil {
		return fmt.Errorf("compare_bigram: %w", err)
	}
	fmt.Fprintf(s.o.Stdout, "held-out loss %.4f nats per token; a bigram model of the same text reaches %.4f\n", s.lastEval.Loss, bigram)
	return nil
}
