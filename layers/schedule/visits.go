package schedule

// visits lists the visits of a pass over n micro-batches: from the first layer to the last and, in training, back to the
// first, once for each round. A Layer counts tiles and turns from 0; visits adds those of earlier layers, so Tile and
// Turn count over the whole model. First, Take and Release are set later.
func (s Spec) visits(n int) []Visit {
	var out []Visit
	tiles, turns, rounds := make([]int, len(s.Layers)+1), make([]int, len(s.Layers)+1), s.Rounds(n)
	for i, l := range s.Layers {
		tiles[i+1], turns[i+1] = tiles[i]+l.Tiles, turns[i]+l.Sweeps
	}
	add := func(round int, phase Phase, layer int, visits []Visit) {
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
	for round := range rounds {
		for i, l := range s.Layers {
			if s.Eval {
				add(round, Evaluate, i, l.Evaluate)
			} else {
				add(round, Forward, i, l.Forward)
			}
		}
		for i := len(s.Layers) - 1; i >= 0 && !s.Eval; i-- {
			add(round, Backward, i, s.Layers[i].Backward)
		}
	}
	return out
}

// Rounds returns the number of rounds of a pass over n micro-batches: the fewest in which none has more than PerRound.
func (s Spec) Rounds(n int) int {
	if s.PerRound == 0 {
		return 1
	}
	return max(1, (n+s.PerRound-1)/s.PerRound)
}

// Round returns the first micro-batch of a round, and the first after the round, of a pass over n micro-batches.
func (s Spec) Round(round, n int) (from, to int) {
	rounds := s.Rounds(n)
	return round * n / rounds, (round + 1) * n / rounds
}

// InRound returns the index of each of n micro-batches in its round.
func (s Spec) InRound(n int) []int {
	index := make([]int, n)
	for round := range s.Rounds(n) {
		from, to := s.Round(round, n)
		for mb := from; mb < to; mb++ {
			index[mb] = mb - from
		}
	}
	return index
}
