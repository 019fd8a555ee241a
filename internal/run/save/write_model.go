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

// serveModel runs on the other ranks while rank 0 writes the model. It sends the layers that rank 0 asks for.
func (w *Weights) serveModel(what parts) error {
	for {
		asked, err := ranks.Tell(w.Ranks, modelAsked, 0)
		if err != nil || asked[0] < 0 {
			return err
		}
		if err := w.Store.WithLayer(asked[0], false, func(l *host.LayerState) error {
			_, err := w.staging.bring(asked[0], l, what)
			return err
		}); err != nil {
			return err
		}
	}
}

// modelAsked names the place where the ranks meet while rank 0 writes the model. Rank 0 tells which layer it needs
// next, and −1 at the end.
const modelAsked = "the model"

// writeModel writes a model into dir: the weights or, if what is averages, their moving averages. The weights are
// those after step, and extra has further files by name. Rank 0 calls writeModel while the other ranks run serveModel.
func (w *Weights) writeModel(dir string, step int, what parts, extra map[string][]byte) error {
	opts := w.content.modelOptions(step)
	home := w.Store
	lent := -1 // layer whose state is in a state slot until the next layer is needed; −1: none
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
		if !w.needs(l, what) && !home.TileOnDisk(i) {
			return open.CheckpointLayer(l), nil
		}
		if home.StateOnDisk(i) {
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

// WriteAverage writes the averaged model, or removes that of an earlier run if this run keeps no average. It runs
// before the best checkpoint's weights are loaded (takeBest), because the averages belong to the weights of the last
// step. If no update was made yet, it writes the weights themselves.
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

// dropAverage removes the averaged model of an earlier run, whose final model is about to be replaced.
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

// WriteFinal writes the final model into the output directory on rank 0, while the other ranks run serveModel.
func (w *Weights) WriteFinal(step int, extra map[string][]byte) error {
	if !w.Ranks.First() {
		return w.serveModel(lowerHalves)
	}
	return w.writeModel(w.Config.OutputDir, step, lowerHalves, extra)
}
