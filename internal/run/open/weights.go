package open

import (
	"errors"
	"fmt"
	"io"

	"mt/base/parallel"
	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
	"mt/internal/run/report"
	"mt/model"
)

// Initialise fills the store with the random initial weights of a model that is trained from scratch. The weights
// depend only on the seed.
func Initialise(s *host.Store, c *model.Config, seed int64, pool *parallel.Pool) error {
	return FillRows(s, pool, func(p model.Param, r int, row []float32) { model.InitRow(c, p, r, seed, row) })
}

// FillRows sets every row of every parameter by calling fill with the parameter, the row's number and memory for its
// values. All workers of pool call fill at the same time. The only possible error is one of a disk.
func FillRows(s *host.Store, pool *parallel.Pool, fill func(p model.Param, r int, row []float32)) error {
	for _, i := range s.Tiled() {
		if err := s.WithLayer(i, true, func(l *host.LayerState) error {
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

// CheckpointLayers returns the layers of the store in the form in which package checkpoint reads and writes them.
func CheckpointLayers(s *host.Store) []checkpoint.Layer {
	out := make([]checkpoint.Layer, len(s.Layers))
	for i, l := range s.Layers {
		out[i] = CheckpointLayer(l)
		if s.StateOnDisk(i) {
			out[i].Lend = func(use func(checkpoint.Layer) error) error {
				return s.WithLayer(i, true, func(l *host.LayerState) error { return use(CheckpointLayer(l)) })
			}
		}
	}
	return out
}

// CheckpointLayer returns a layer in the form in which package checkpoint reads and writes it. The memory is shared.
func CheckpointLayer(l *host.LayerState) checkpoint.Layer {
	return checkpoint.Layer{Layout: l.Layout, Tile: l.Tile, Lo: l.Lo, Planes: l.Planes, Share: &l.Share}
}

// LoadModel reads the weights of ModelDir into store and fills the rows of new tokens with the mean of known rows. If
// upper is true, the mean uses only the high halves of weights, because with several ranks no rank has all lower
// halves.
func (in *Inputs) LoadModel(store *host.Store, upper bool, pool *parallel.Pool, l *report.Line) error {
	unexpected, err := checkpoint.LoadModel(in.ModelDir, CheckpointLayers(store), in.Opened.Stored.VocabSize, nil)
	if err != nil {
		return err
	}
	if err := startRows(store, in.Opened.newRows(), in.Opened.known, upper, pool); err != nil {
		return err
	}
	for _, name := range unexpected {
		if c := in.Opened.Stored; c.Ahead > 0 && c.PredictsAhead(name) {
			return in.Config.Errorf("train_mtp", "train_mtp trains one module for multi-token prediction, but %s has more: tensor %q", in.ModelDir, name)
		}
	}
	for _, note := range in.notTrained(unexpected) {
		l.Above(note)
	}
	return nil
}

// notTrained returns notes about the tensors of ModelDir that are not trained.
func (in *Inputs) notTrained(names []string) (notes []string) {
	var ahead, rest []string
	for _, name := range names {
		if in.Opened.Stored.PredictsAhead(name) {
			ahead = append(ahead, name)
		} else {
			rest = append(rest, name)
		}
	}
	if len(rest) > 0 {
		notes = append(notes, fmt.Sprintf("note: %s has %d tensors that are not trained, such as %s: they are saved as they are", in.ModelDir, len(rest), rest[0]))
	}
	if len(ahead) > 0 {
		notes = append(notes, fmt.Sprintf("note: %s has %d tensors of multi-token prediction, such as %s: they are saved as they are, and are stale beside the weights that are trained",
			in.ModelDir, len(ahead), ahead[0]))
	}
	return notes
}

// WeightsOf loads the weights of ModelDir into a new store without optimizer state. If upper is true, new rows start
// at the mean of the high halves only.
func (in *Inputs) WeightsOf(layouts []model.Layout, upper bool, pool *parallel.Pool) (*host.Store, error) {
	store, err := host.NewStore(layouts, nil, pool)
	if err != nil {
		return nil, err
	}
	if err := in.LoadModel(store, upper, pool, &report.Line{Out: io.Discard}); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// meanRows is the number of rows that are added up in one partial sum. Since it is fixed, the order of additions
// depends only on the table's size, not on the number of threads.
const meanRows = 1024

// startRows fills the given rows of the embedding and the head with the mean of the first n rows, which belong to
// known tokens. A token whose row is the mean hardly changes the other tokens' probabilities. Transformers'
// resize_token_embeddings does the same, plus noise of 1e-9 times the covariance (mean_resizing; Hewitt, "Initializing
// New Word Embeddings for Pretrained Language Models", 2021).
//
// With several ranks no rank has all lower halves, so each takes the mean of the high halves.
func startRows(s *host.Store, rows []int, n int, several bool, pool *parallel.Pool) error {
	for i, l := range s.Layers {
		for t, tl := range l.Layout.Tensors {
			if tl.Ref || tl.Role != model.RoleEmbed && tl.Role != model.RoleLMHead && tl.Role != model.RoleLMHeadBias || len(rows) == 0 {
				continue
			}
			if err := s.WithLayer(i, true, func(l *host.LayerState) error {
				mean := meanRow(l, t, n, several, pool)
				for _, row := range rows {
					l.WriteRows(t, row, 1, mean)
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// meanRow returns the mean of the first n rows of the layer's tensor number t, summed in float64. If upper is true, it
// uses only the high halves of weights.
func meanRow(l *host.LayerState, t, n int, upper bool, pool *parallel.Pool) []float32 {
	cols := l.Layout.Tensors[t].Cols
	sums := make([][]float64, (n+meanRows-1)/meanRows)
	pool.Run(len(sums), func(i int) {
		sum, row, none := make([]float64, cols), make([]float32, cols), make([]uint16, cols)
		for r := i * meanRows; r < min(n, (i+1)*meanRows); r++ {
			if upper && l.Layout.Tensors[t].BF16 {
				optim.JoinRow(row, l.HiPlane(t)[r*cols:(r+1)*cols], none)
			} else {
				l.ReadRows(t, r, 1, row)
			}
			for c, x := range row {
				sum[c] += float64(x)
			}
		}
		sums[i] = sum
	})
	mean := make([]float32, cols)
	for c := range mean {
		var sum float64
		for _, part := range sums {
			sum += part[c]
		}
		mean[c] = float32(sum / float64(n))
	}
	return mean
}
