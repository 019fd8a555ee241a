package session

import (
	"fmt"

	"mt/actors"
)

// untrained returns an error if the run reached its last step without a model to write. Either every step was skipped as not
// finite, or the last steps were skipped and a weight is not finite. A run shorter than max_nonfinite_steps can end so.
func (s *session) untrained() error {
	skipped, steps := s.reached.NonFinite, s.reached.Step-s.From.State.Step
	if skipped == 0 || steps <= 0 {
		return nil
	}
	var err error
	if skipped >= steps {
		err = fmt.Errorf("the loss or the gradient was not finite in any of the %d steps, so no weight was updated, and no model is written", steps)
	} else if name, failed := s.BrokenTensor(); failed != nil {
		return failed
	} else if name != "" {
		err = fmt.Errorf("the last %d steps were skipped, since loss or gradient was not finite, and the weights of %s are not finite: no model is written", skipped, name)
	} else {
		s.Late.Add(fmt.Sprintf("the last %d steps were skipped, since loss or gradient was not finite: no step has shown the weights of step %d to be good", skipped, s.reached.Step-skipped))
		return nil
	}
	if !s.Team.First() {
		return err
	}
	return s.NonFinite(&actors.NonFiniteError{Step: s.reached.Step, Finite: s.reached.Step - skipped}, err, s.saver.Last.Step)
}
