package open

import (
	"mt/host"
	"mt/host/optim"
	"mt/internal/parallel"
	"mt/model"
)

// meanRows is how many rows of a table make one partial sum. The partial sums are then
// added, so that the order of all additions follows from the table's size alone.
const meanRows = 1024

// startRows gives rows of the vocabulary's tables the mean of the first n, which are
// those of the tokens that the model knew: a token that starts there hardly changes the
// probabilities of the others. Transformers' resize_token_embeddings does the same, but
// adds noise of 1e-9 times the covariance (mean_resizing; Hewitt, "Initializing New
// Word Embeddings for Pretrained Language Models", 2021).
//
// Of several ranks, none of which has all lower halves, each takes the mean of the upper ones.
func startRows(s *host.Store, rows []int, n int, several bool, pool *parallel.Pool) error {
	for i, l := range s.Layers {
		for t, tl := range l.Layout.Tensors {
			if tl.Ref || tl.Role != model.RoleEmbed && tl.Role != model.RoleLMHead && tl.Role != model.RoleLMHeadBias || len(rows) == 0 {
				continue
			}
			if err := s.Lend(i, true, func(l *host.LayerState) error {
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

// meanRow is the mean of the first n rows of tensor t, summed in float64; with upper, that of their
// upper halves where weights are split.
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
