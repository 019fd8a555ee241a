package plan

import (
	"mt/layers/schedule"
	"mt/model"
)

// This file handles frozen tensors (model.Freeze). A visit to a frozen tile accumulates no gradient. Layers below the
// lowest trained layer have no backward.

// Frozen reports whether layer l has no gradient because all its tensors are frozen.
func (r *Run) Frozen(l int) bool { return r.Layouts[l].GradElems == 0 }

// FrozenLayers reports for each layer whether all its tensors are frozen; nil: no such layer.
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

// dropFrozen changes the schedule of layers. It removes the backward of layers below the lowest
// trained layer. It also removes the accumulation of gradients from visits whose tensors are all
// frozen.
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

// passes returns how often a step computes as many products as layer l's forward. That is once for
// the forward, and from the lowest trained layer on once more for the gradient of the input. The
// gradient of the weights adds the trained fraction of the layer. A head in parts, and one with a loss on pairs, computes
// its logits once more.
func (r *Run) passes(l int) float64 {
	if l < model.LowestTrained(r.Layouts) {
		return 1
	}
	layout := r.Layouts[l]
	n := 2 + float64(layout.GradElems)/float64(layout.AllElems())
	if layout.Kind == model.Head && (r.Spec.Shards() > 1 || !r.Spec.Preference.None()) {
		n++
	}
	return n
}

// blocksWithoutBackward returns the number of decoder blocks below the lowest trained layer.
func (r *Run) blocksWithoutBackward() (n int) {
	if r.EvalOnly {
		return 0
	}
	for l, lowest := 0, model.LowestTrained(r.Layouts); l < lowest; l++ {
		at, next := r.Layouts[l], r.Layouts[l+1]
		if isBlock := at.Kind.BeginsBlock() || at.Kind == model.MoE; isBlock && (next.Kind != model.MoE || next.Block != at.Block) {
			n++
		}
	}
	return n
}
