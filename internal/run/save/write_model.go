package save

import (
	"fmt"
	"io"

	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
	"mt/internal/run/open"
	"mt/internal/run/ranks"
	"mt/internal/run/resume"
	"mt/internal/run/settings"
)

// serveModel does the part of a rank that does not write the model: it sends rank 0 the parts of layers
// that it asks for.
func (w *Weights) serveModel(what parts) error {
	for {
		asked, err := ranks.Tell(w.Ranks, modelAsked, 0)
		if err != nil || asked[0] < 0 {
			return err
		}
		if err := w.Store.Lend(asked[0], false, func(l *host.LayerState) error {
			_, err := w.staging.bring(asked[0], l, what)
			return err
		}); err != nil {
			return err
		}
	}
}

// modelAsked is where ranks meet while the model is written: rank 0 tells which layer it needs, and
// −1 when it is done.
const modelAsked = "the model"

// writeModel writes the model into dir, of the weights or of their averages, as what says. With several ranks it is for rank 0,
// while the others serve.
func (w *Weights) writeModel(dir string, step int, what parts, extra map[string][]byte) error {
	opts := w.content.modelOptions(step)
	home := w.Store
	lent := -1 // a layer whose state is in a state slot until the next one is wanted
	giveBack := func() {
		if lent >= 0 {
			home.Drop(lent)
			lent = -1
		}
	}
	defer giveBack()
	opts.Whole = func(i int) (checkpoint.Layer, error) {
		giveBack()
		l := home.Layers[i]
		if !w.needs(l, what) && !home.TileAway(i) {
			return open.CheckpointLayer(l), nil
		}
		if home.Away(i) {
			if err := home.Fetch(i, 0); err != nil {
				return checkpoint.Layer{}, err
			}
			lent = i
		}
		if _, err := ranks.Tell(w.Ranks, modelAsked, i); err != nil {
			return checkpoint.Layer{}, err
		}
		whole, err := w.staging.bring(i, l, what)
		if what == averages {
			whole.Mean = optim.MeanOf(whole.Planes)
		}
		return whole, err
	}
	if err := checkpoint.WriteModel(dir, open.CheckpointLayers(w.Store), opts, extra); err != nil {
		return fmt.Errorf("write the model: %w", err)
	}
	_, err := ranks.Tell(w.Ranks, modelAsked, -1)
	return err
}

// WriteAverage writes the model of the averages. If none are kept, it removes that of an earlier run. It comes before takeBest, which fills the store with weights
// that they do not belong to: they are those of the last step. Where nothing was updated yet, they are the weights.
func (w *Weights) WriteAverage(step int, updated bool, extra map[string][]byte, out io.Writer) error {
	what := averages
	switch {
	case w.Config.EMADecay == 0:
		return w.dropAverage(out)
	case !updated:
		what = lowerHalves
	}
	if !w.Ranks.First() {
		return w.serveModel(what)
	}
	if err := w.writeModel(settings.AveragesIn(w.Config), step, what, extra); err != nil {
		return err
	}
	fmt.Fprintf(out, "the average of the weights is written to %s\n", settings.AveragesIn(w.Config))
	return nil
}

// dropAverage removes the model of averages that an earlier run has left in the output directory, whose own model is about to be replaced.
func (w *Weights) dropAverage(out io.Writer) error {
	dir := settings.AveragesIn(w.Config)
	if !w.Ranks.First() || !resume.HoldsWeights(dir) {
		return nil
	}
	if err := w.FS().RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the average of an earlier run's weights: %w", err)
	}
	fmt.Fprintf(out, "%s, the average of an earlier run's weights, is removed\n", dir)
	return nil
}

// WriteFinal writes the model of the weights into the output directory, on rank 0; the others serve.
func (w *Weights) WriteFinal(step int, extra map[string][]byte) error {
	if !w.Ranks.First() {
		return w.serveModel(lowerHalves)
	}
	return w.writeModel(w.Config.OutputDir, step, lowerHalves, extra)
}
