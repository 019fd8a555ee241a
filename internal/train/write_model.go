package train

import (
	"fmt"

	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
)

// serveModel does the part of a rank that does not write the model: it sends rank 0 the parts of layers
// that it asks for.
func (s *session) serveModel(what parts) error {
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
func (s *session) writeModel(dir string, what parts, extra map[string][]byte) error {
	opts := s.writerOptions(s.lastStep)
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
