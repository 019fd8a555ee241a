package session

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"mt/actors"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/resolve"
	"mt/internal/run/resume"
	"mt/internal/run/save"
	"mt/internal/run/settings"
)

// TestAfter: after a skipped step, the number of updates (AdamStep) is unchanged and the count of
// skipped steps is one higher.
func TestAfter(t *testing.T) {
	was := actors.State{Step: 4, AdamStep: 3, NonFinite: 1, Tokens: 50}
	for skipped, want := range map[bool]actors.State{
		false: {Step: 5, AdamStep: 4, Tokens: 60},
		true:  {Step: 5, AdamStep: 3, NonFinite: 2, Tokens: 60},
	} {
		if got := after(was, actors.StepReport{Step: 5, TotalTokens: 60, Skipped: skipped}); got != want {
			t.Errorf("skipped %t: %+v, want %+v", skipped, got, want)
		}
	}
}

// TestLeavePinned: host memory stays pinned only after the last pipeline of a process that exits
// with the run.
func TestLeavePinned(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, tc := range map[string]struct {
		ends   bool
		step   int
		err    error
		halted context.Context
		every  int // samples
		want   bool
	}{
		"the last step":                  {ends: true, step: 9, want: true},
		"a process that goes on":         {step: 9},
		"a pause":                        {ends: true, step: 6},
		"stopped":                        {ends: true, step: 6, halted: stopped, want: true},
		"samples are owed":               {ends: true, step: 9, every: 3},
		"no samples are owed":            {ends: true, step: 9, every: 5, want: true},
		"an error":                       {ends: true, step: 9, err: errors.New("x")},
		"an error after it was stopped":  {ends: true, step: 6, err: errors.New("x"), halted: stopped},
		"a step that was given up":       {ends: true, step: 6, err: fmt.Errorf("x: %w", &actors.StepAbortedError{}), halted: stopped, want: true},
		"given up in one that goes on":   {step: 6, err: &actors.StepAbortedError{}, halted: stopped},
		"stopped in a process that runs": {step: 6, halted: stopped},
	} {
		out := save.NewOutput(&resolve.Resolved{Start: resume.Fresh(&open.Inputs{Config: &config.Config{}})})
		s := &session{Weights: &save.Weights{Output: out}, o: settings.Options{ProcessEnds: tc.ends}, lastStep: tc.step, halted: tc.halted}
		if s.Config.MaxSteps, s.samples.every = 9, tc.every; s.halted == nil {
			s.halted = t.Context()
		}
		if got := s.leavePinned(tc.err); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
