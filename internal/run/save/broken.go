package save

import (
	"errors"
	"fmt"
	"math"

	"mt/actors"
	"mt/host"
)

// CheckTrained returns an error if the run reached its last step, with the state reached, without a model to write; saved is the step of its
// last checkpoint. Either every step was skipped as not
// finite, or the last steps were skipped and a weight is not finite. A run shorter than max_nonfinite_steps can end so.
func (w *Weights) CheckTrained(reached actors.State, saved int) error {
	skipped, steps := reached.NonFinite, reached.Step-w.From.State.Step
	if skipped == 0 || steps <= 0 {
		return nil
	}
	var err error
	if skipped >= steps {
		err = fmt.Errorf("the loss or the gradient was not finite in any of the %d steps, so no weight was updated, and no model is written", steps)
	} else if name, failed := w.brokenTensor(); failed != nil {
		return failed
	} else if name != "" {
		err = fmt.Errorf("the last %d steps were skipped, since loss or gradient was not finite, and the weights of %s are not finite: no model is written", skipped, name)
	} else {
		w.Late.Add(fmt.Sprintf("the last %d steps were skipped, since loss or gradient was not finite: no step has shown the weights of step %d to be good", skipped, reached.Step-skipped))
		return nil
	}
	if !w.Team.First() {
		return err
	}
	return w.NonFinite(&actors.NonFiniteError{Step: reached.Step, Finite: reached.Step - skipped}, err, saved)
}

// errBroken ends the search for a weight that is not finite.
var errBroken = errors.New("a weight is not finite")

// brokenTensor is the name of the first tensor with a weight that is not finite; "" for none. Where several ranks share the
// weights it looks at none.
func (w *Weights) brokenTensor() (name string, err error) {
	if w.Team.Size() > 1 {
		return "", nil
	}
	for _, i := range w.Store.Distinct() {
		err := w.Store.Lend(i, false, func(l *host.LayerState) error {
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
