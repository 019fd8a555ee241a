package train

import (
	"errors"
	"fmt"
	"math"

	"mt/actors"
	"mt/host"
)

// untrained returns an error if the run reached its last step without a model to write. Either every step was skipped as not
// finite, or the last steps were skipped and a weight is not finite. A run shorter than max_nonfinite_steps can end so.
func (s *session) untrained() error {
	skipped, steps := s.reached.NonFinite, s.reached.Step-s.from.state.Step
	if skipped == 0 || steps <= 0 {
		return nil
	}
	var err error
	if skipped >= steps {
		err = fmt.Errorf("the loss or the gradient was not finite in any of the %d steps, so no weight was updated, and no model is written", steps)
	} else if name, failed := s.brokenTensor(); failed != nil {
		return failed
	} else if name != "" {
		err = fmt.Errorf("the last %d steps were skipped, since loss or gradient was not finite, and the weights of %s are not finite: no model is written", skipped, name)
	} else {
		s.late.add(fmt.Sprintf("the last %d steps were skipped, since loss or gradient was not finite: no step has shown the weights of step %d to be good", skipped, s.reached.Step-skipped))
		return nil
	}
	if !s.team.first() {
		return err
	}
	return s.nonFinite(&actors.NonFiniteError{Step: s.reached.Step, Finite: s.reached.Step - skipped}, err, s.saver.last.Step)
}

// errBroken ends the search for a weight that is not finite.
var errBroken = errors.New("a weight is not finite")

// brokenTensor is the name of the first tensor with a weight that is not finite; "" for none. Where several ranks share the
// weights it looks at none.
func (s *session) brokenTensor() (name string, err error) {
	if s.team.Size() > 1 {
		return "", nil
	}
	for _, i := range s.store.Distinct() {
		err := s.store.Lend(i, false, func(l *host.LayerState) error {
			if name = brokenIn(l); name != "" {
				return errBroken
			}
			return nil
		})
		if errors.Is(err, errBroken) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// brokenIn is the name of a layer's first tensor with a weight that is not finite; "" for none.
func brokenIn(l *host.LayerState) string {
	for t, tl := range l.Layout.Tensors {
		if tl.Ref {
			continue
		}
		row := make([]float32, tl.Cols)
		for r := range tl.Rows {
			l.ReadRows(t, r, 1, row)
			for _, x := range row {
				if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
					return tl.Stored[0].Name
				}
			}
		}
	}
	return ""
}
