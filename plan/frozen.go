package plan

import (
	"mt/layers/schedule"
	"mt/model"
)

// This file is of what is frozen (model.Freeze): it needs no gradient, so a visit to a frozen tile sums up none, and
// below the lowest layer that is trained there is no backward.

// Frozen says whether layer l has no gradient, because all that it would be of is frozen.
func (r *Run) Frozen(l int) bool { return r.Layouts[l].GradElems == 0 }

// FrozenLayers says of each layer whether it is frozen; nil: none is.
func (r *Run) FrozenLayers() []bool {
	out, some := make([]bool, len(r.Layouts)), false
	for l := range out {
		out[l] = r.Frozen(l)
		some = some || out[l]
	}
	if !some {
		return nil
	}
	return out
}

// dropFrozen takes from the layers' visits what is only for gradients that nobody wants.
func (r *Run) dropFrozen(layers []schedule.Layer) {
	lowest := model.LowestTrained(r.Layouts)
	for i := range layers {
		l := &layers[i]
		if i < lowest {
			l.Backward = nil
		}
		for k := range l.Backward {
			v := &l.Backward[k]
			if r.Kind(i).Part(r.Spec, r.Layouts[i], v.Part).GradElems(r.Limits.UniqueIDs) == 0 {
				v.Uses &^= schedule.AccumulatesGrad
			}
		}
	}
}

// passes is how many times the forward's products of layer l a step computes: once for the forward and, from the lowest
// layer that is trained on, for the gradients of inputs, and once more for as much of the layer as is trained.
func (r *Run) passes(l int) float64 {
	if l < model.LowestTrained(r.Layouts) {
		return 1
	}
	layout := r.Layouts[l]
	return 2 + float64(layout.GradElems)/float64(layout.AllElems())
}

// blocksWithoutBackward is how many decoder blocks are wholly below the lowest layer that is trained.
func (r *Run) blocksWithoutBackward() (n int) {
	if r.EvalOnly {
		return 0
	}
	for l, lowest := 0, model.LowestTrained(r.Layouts); l < lowest; l++ {
		if k := r.Layouts[l].Kind; k == model.Block || k == model.Recurrent || k == model.MoE {
			n++
		}
	}
	return n
}
