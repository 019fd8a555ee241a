package train

import (
	"fmt"
	"io"

	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
)

// serveModel does the part of a rank that does not write the model: it sends rank 0 the parts of layers
// that it asks for.
func (s *Weights) serveModel(what parts) error {
	for {
		asked, err := tell(s.team, modelAsked, 0)
		if err != nil || asked[0] < 0 {
			return err
		}
		if err := s.store.Lend(asked[0], false, func(l *host.LayerState) error {
			_, err := s.staging.bring(asked[0], l, what)
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
func (s *Weights) writeModel(dir string, step int, what parts, extra map[string][]byte) error {
	opts := s.writerOptions(step)
	home := s.store
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
		if !s.needs(l, what) && !home.TileAway(i) {
			return checkpointLayer(l), nil
		}
		if home.Away(i) {
			if err := home.Fetch(i, 0); err != nil {
				return checkpoint.Layer{}, err
			}
			lent = i
		}
		if _, err := tell(s.team, modelAsked, i); err != nil {
			return checkpoint.Layer{}, err
		}
		whole, err := s.staging.bring(i, l, what)
		if what == averages {
			whole.Mean = optim.MeanOf(whole.Planes)
		}
		return whole, err
	}
	if err := checkpoint.WriteModel(dir, checkpointLayers(s.store), opts, extra); err != nil {
		return fmt.Errorf("write the model: %w", err)
	}
	_, err := tell(s.team, modelAsked, -1)
	return err
}

// writeAverage writes the model of the averages. If none are kept, it removes that of an earlier run. It comes before takeBest, which fills the store with weights
// that they do not belong to: they are those of the last step. Where nothing was updated yet, they are the weights.
func (s *Weights) writeAverage(step int, updated bool, extra map[string][]byte, out io.Writer) error {
	what := averages
	switch {
	case s.c.EMADecay == 0:
		return s.dropAverage(out)
	case !updated:
		what = lowerHalves
	}
	if !s.team.first() {
		return s.serveModel(what)
	}
	if err := s.writeModel(averagesIn(s.c), step, what, extra); err != nil {
		return err
	}
	fmt.Fprintf(out, "the average of the weights is written to %s\n", averagesIn(s.c))
	return nil
}

// dropAverage removes the model of averages that an earlier run has left in the output directory, whose own model is about to be replaced.
func (s *Weights) dropAverage(out io.Writer) error {
	dir := averagesIn(s.c)
	if !s.team.first() || !holdsWeights(dir) {
		return nil
	}
	if err := s.fs().RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the average of an earlier run's weights: %w", err)
	}
	fmt.Fprintf(out, "%s, the average of an earlier run's weights, is removed\n", dir)
	return nil
}

// writeFinal writes the model of the weights into the output directory, on rank 0; the others serve.
func (s *Weights) writeFinal(step int, extra map[string][]byte) error {
	if !s.team.first() {
		return s.serveModel(lowerHalves)
	}
	return s.writeModel(s.c.OutputDir, step, lowerHalves, extra)
}
