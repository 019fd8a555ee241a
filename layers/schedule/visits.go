package schedule

// visits lists the visits of a pass over n micro-batches: from the first layer to the last and, in training, back to the
// first, once for each round. A Layer counts tiles and turns from 0; visits adds those of earlier layers, so Tile and
// Turn count over the whole model. First, Take and Release are set later.
func (s Spec) visits(n int) []Visit {
	var out []Visit
	tiles, turns := make([]int, len(s.Layers)+1), make([]int, len(s.Layers)+1)
	for i, l := range s.Layers {
		tiles[i+1], turns[i+1] = tiles[i]+l.Tiles, turns[i]+l.Sweeps
	}
	rounds := s.rounds(n)
	for round := range rounds {
		add := func(phase Phase, layer int, visits []Visit) {
			last := -1 // the last visit that accumulates a gradient
			for i, v := range visits {
				if v.Grad() {
					last = i
				}
			}
			for i, v := range visits {
				v.Phase, v.Layer, v.Class, v.Round = phase, layer, s.Layers[layer].Class, round
				v.Tile, v.Turn = tiles[layer]+v.Part, turns[layer]+v.Turn
				v.Complete = phase == Backward && i == last
				v.Resumes, v.Partial = v.Grad() && round > 0, v.Grad() && round+1 < rounds
				v.Loss = v.Loss && round+1 == rounds
				out = append(out, v)
			}
		}
		for i, l := range s.Layers {
			if s.Eval {
				add(Evaluate, i, l.Evaluate)
			} else {
				add(Forward, i, l.Forward)
			}
		}
		for i := len(s.Layers) - 1; i >= 0 && !s.Eval; i-- {
			add(Backward, i, s.Layers[i].Backward)
		}
	}
	return out
}

// rounds returns the number of rounds of a pass over n micro-batches. Every round has at least one.
func (s Spec) rounds(n int) int {
	most := n
	if s.PerRound > 0 {
		most = (n + s.PerRound - 1) / s.PerRound
	}
	return max(1, min(s.Rounds, most))
}

// Round returns the first of n micro-batches that a round takes, and the first that it no longer takes.
func (s Spec) Round(round, n int) (from, to int) {
	rounds := s.rounds(n)
	return round * n / rounds, (round + 1) * n / rounds
}

// InRound returns, for each of n micro-batches, its index among those of its round.
func (s Spec) InRound(n int) []int {
	index := make([]int, n)
	for round := range s.rounds(n) {
		from, to := s.Round(round, n)
		for mb := from; mb < to; mb++ {
			index[mb] = mb - from
		}
	}
	return index
}
