package save

import (
	"errors"
	"fmt"
	"math"

	"mt/actors"
	"mt/base/parallel"
	"mt/host"
	"mt/host/optim"
	"mt/internal/run/open"
	"mt/internal/run/report"
	"mt/internal/run/settings"
)

// Weights holds the weights of a run in memory with their optimizer state, and moves them to and from files.
type Weights struct {
	*Output
	Pool    *parallel.Pool
	Store   *host.Store
	content *Content // on rank 0, which alone writes
	staging *staging
	closers open.Closers
}

// Open allocates memory for the weights and their optimizer state.
func (w *Weights) Open(pool *parallel.Pool) (err error) {
	w.Pool = pool
	tier, links, err := w.OpenTier(w.Plan, true, w.closers.AddErr)
	if err != nil {
		return err
	}
	if w.Ranks.First() {
		if w.content, err = w.contentWith(links); err != nil {
			return err
		}
	}
	if tier.StateOnDisk != nil && w.Ranks.First() {
		note, err := space{w.content}.check() // checked again, because the files of states may now take space on output_dir's disk
		if err != nil {
			return err
		}
		if note != "" {
			w.DeferredNotes.Add(note)
		}
	}
	var shares []optim.Share
	if w.Ranks.Size() > 1 {
		shares = w.Plan.OwnShares()
	}
	if w.Store, err = host.NewTieredStore(w.Plan.Layouts, w.Plan.Planes, shares, tier, w.Pool); err != nil {
		return err
	}
	w.closers.Add(func() { _ = w.Store.Close() })
	for _, note := range open.NodeNotes(host.MachineNodes()) {
		w.DeferredNotes.Add(note)
	}
	w.Store.SetRoundingSeed(uint64(w.Config.Seed))
	w.Store.SetEMA(settings.Average(w.Config))
	if w.staging, err = openStaging(w.Ranks, w.Plan, w.Pool); err != nil {
		return err
	}
	w.closers.Add(func() { _ = w.staging.Close() })
	return nil
}

// Beside returns the files to save beside weights, on rank 0.
func (w *Weights) Beside() map[string][]byte { return w.content.beside }

// LinksStates reports whether checkpoints hard-link the files of states on disks.
func (w *Weights) LinksStates() bool { return w.content != nil && w.content.links != nil }

// Fill fills the store with the weights with which the run starts: from the checkpoint, from the model's directory, or
// random.
func (w *Weights) Fill(say *report.Line) error {
	from := w.From
	switch {
	case from.Dir != "":
		if err := w.load(); err != nil {
			return err
		}
		if from.Reset {
			for i := range w.Store.Layers {
				if err := w.Store.WithLayer(i, true, func(l *host.LayerState) error {
					for _, p := range l.Planes {
						clear(p.Data)
					}
					return nil
				}); err != nil {
					return err
				}
			}
		}
		say.Above(fmt.Sprintf("resuming from %s, step %d of %d", from.Dir, from.State.Step, w.Config.MaxSteps))
	case w.ModelDir != "":
		if err := w.LoadModel(w.Store, w.Ranks.Size() > 1, w.Pool, say); err != nil {
			return err
		}
	default:
		return open.Initialise(w.Store, w.Model, w.Config.Seed, w.Pool)
	}
	return nil
}

// Close frees the memory.
func (w *Weights) Close() error { return w.closers.Close() }

// CheckTrained returns an error if the run reached its last step, in state reached, without a usable model. saved is
// the step of its last checkpoint. Either every step was skipped as not finite, or the last steps were skipped and a
// weight is not finite. A run shorter than max_nonfinite_steps can end like this.
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
		w.DeferredNotes.Add(fmt.Sprintf("the last %d steps were skipped, since loss or gradient was not finite: no step has shown the weights of step %d to be good", skipped, reached.Step-skipped))
		return nil
	}
	if !w.Ranks.First() {
		return err
	}
	return w.NonFinite(&actors.NonFiniteError{Step: reached.Step, Finite: reached.Step - skipped}, err, saved)
}

// errBroken ends the loop over all layers when a weight that is not finite is found. Nobody sees this error.
var errBroken = errors.New("a weight is not finite")

// brokenTensor returns the name of the first tensor with a weight that is not finite; "" if there is none. With
// several ranks it always returns "".
func (w *Weights) brokenTensor() (name string, err error) {
	if w.Ranks.Size() > 1 {
		return "", nil
	}
	for _, i := range w.Store.Tiled() {
		err := w.Store.WithLayer(i, false, func(l *host.LayerState) error {
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

// brokenIn returns the name of a layer's first tensor with a weight that is not finite; "" if none.
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
