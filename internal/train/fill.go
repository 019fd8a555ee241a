package train

import (
	"errors"
	"fmt"
	"io"

	"mt/checkpoint"
	"mt/host"
	"mt/internal/parallel"
	"mt/model"
)

// initialise fills the store with the first weights of training from scratch.
func initialise(s *host.Store, c *model.Config, seed int64, pool *parallel.Pool) error {
	return fillRows(s, pool, func(p model.Param, r int, row []float32) { model.InitRow(c, p, r, seed, row) })
}

// fillRows writes every row of every parameter with what fill stores in row. fill is
// called from all workers of pool. Only a disk can fail.
func fillRows(s *host.Store, pool *parallel.Pool, fill func(p model.Param, r int, row []float32)) error {
	for _, i := range s.Distinct() {
		if err := s.Lend(i, true, func(l *host.LayerState) error {
			fillLayer(l, pool, fill)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func fillLayer(l *host.LayerState, pool *parallel.Pool, fill func(p model.Param, r int, row []float32)) {
	for t, tl := range l.Layout.Tensors {
		if tl.Ref {
			continue
		}
		rowsAt := max(1, (1<<16)/tl.Cols)
		pool.Run((tl.Rows+rowsAt-1)/rowsAt, func(i int) {
			row := make([]float32, tl.Cols)
			for r := i * rowsAt; r < min(tl.Rows, (i+1)*rowsAt); r++ {
				fill(tl.Param, r, row)
				l.WriteRows(t, r, 1, row)
			}
		})
	}
}

// checkpointLayers views the store as package checkpoint wants it.
func checkpointLayers(s *host.Store) []checkpoint.Layer {
	out := make([]checkpoint.Layer, len(s.Layers))
	for i, l := range s.Layers {
		out[i] = checkpointLayer(l)
		if s.Away(i) {
			out[i].Lend = func(use func(checkpoint.Layer) error) error {
				return s.Lend(i, true, func(l *host.LayerState) error { return use(checkpointLayer(l)) })
			}
		}
	}
	return out
}

func checkpointLayer(l *host.LayerState) checkpoint.Layer {
	return checkpoint.Layer{Layout: l.Layout, Tile: l.Tile, Lo: l.Lo, Planes: l.Planes, Share: &l.Share}
}

// loadModel reads the weights of modelDir, and gives tokens that are new their rows, at the mean of upper
// halves where upper says so: of several ranks none has all lower ones.
func (j *Inputs) loadModel(store *host.Store, upper bool, pool *parallel.Pool, l *line) error {
	unexpected, err := checkpoint.LoadModel(j.modelDir, checkpointLayers(store), j.opened.Stored.VocabSize, nil)
	if err != nil {
		return err
	}
	if err := startRows(store, j.opened.newRows(), j.opened.known, upper, pool); err != nil {
		return err
	}
	if len(unexpected) > 0 {
		l.above(fmt.Sprintf("note: %s has %d tensors that are not trained, such as %s: they are saved as they are", j.modelDir, len(unexpected), unexpected[0]))
	}
	return nil
}

// weightsOf loads the weights of modelDir into a store that keeps nothing beside them; upper as for
// loadModel.
func (j *Inputs) weightsOf(layouts []model.Layout, upper bool, pool *parallel.Pool) (*host.Store, error) {
	store, err := host.NewStore(layouts, nil, pool)
	if err != nil {
		return nil, err
	}
	if err := j.loadModel(store, upper, pool, &line{w: io.Discard}); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}
