package schedule

// visits lists the visits of a pass: from the first layer to the last and, in training, back to the first. A Layer
// counts tiles and turns from 0; visits adds those of earlier layers, so Tile and Turn count over the whole model.
// First, Take and Release are set later.
func (s Spec) visits() []Visit {
	var out []Visit
	tiles, turns := make([]int, len(s.Layers)+1), make([]int, len(s.Layers)+1)
	add := func(phase Phase, layer int, visits []Visit) {
		last := -1 // the last visit that accumulates a gradient
		for i, v := range visits {
			if v.Grad() {
				last = i
			}
		}
		for i, v := range visits {
			v.Phase, v.Layer, v.Class = phase, layer, s.Layers[layer].Class
			v.Tile, v.Turn = tiles[layer]+v.Part, turns[layer]+v.Turn
			v.Complete = phase == Backward && i == last
			out = append(out, v)
		}
	}
	for i, l := range s.Layers {
		tiles[i+1], turns[i+1] = tiles[i]+l.Tiles, turns[i]+l.Sweeps
		if s.Eval {
			add(Evaluate, i, l.Evaluate)
		} else {
			add(Forward, i, l.Forward)
		}
	}
	for i := len(s.Layers) - 1; i >= 0 && !s.Eval; i-- {
		add(Backward, i, s.Layers[i].Backward)
	}
	return out
}
