package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mt/actors"
)

// This file has what becomes of a step in progress when the run is asked to stop. It is made and saved, unless that takes
// long, as of rows of hundreds of thousands of tokens: then the step is given up, and the state before it is saved.

// patience is how long a run that was asked to stop goes on with its step. A step that is predicted to take longer is
// given up at once.
const patience = 2 * time.Minute

// impatient returns what is closed when the step in progress is to be given up after ctx is done. The function that
// it returns ends the waiting. Of several ranks all make the step.
func (s *session) impatient(ctx context.Context) (giveUp <-chan struct{}, end func()) {
	waits := patience
	if p := s.hooks.patience; p > 0 {
		waits = p
	}
	up, over := make(chan struct{}), make(chan struct{})
	if s.team.Size() > 1 {
		return nil, func() {}
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-over:
			return
		}
		left := waits
		if s.stepTakes() > waits {
			left = 0
		}
		select {
		case <-time.After(left):
			close(up)
		case <-over:
		}
	}()
	return up, func() { close(over) }
}

// stepTakes is about what a step takes: what the last one took or, before the first, what its products and attention take at
// the device's peak.
func (s *session) stepTakes() time.Duration {
	if took := s.took.Load(); took > 0 {
		return time.Duration(took)
	}
	if !(s.meter.peakFLOPS > 0) {
		return 0
	}
	p := s.plan
	rows := int64(p.Limits.Tokens) / int64(p.RowTokens)
	_, executed := flopsOf(p)(int64(p.Limits.Tokens), rows*p.Spec.Config.AttendedPairs(p.RowTokens), rows*p.Spec.PairsAgain(p.RowTokens))
	return time.Duration(executed / s.meter.peakFLOPS * float64(time.Second))
}

// gaveUp saves what a run has reached that has given up its step; any other end of the pipeline is only passed on.
func (s *session) gaveUp(err error) error {
	var up *actors.GivenUpError
	if !errors.As(err, &up) {
		return damagedState(err)
	}
	s.line.above(fmt.Sprintf("%v, since it takes long; nothing before it is lost", up))
	return s.saveAsItIs()
}
