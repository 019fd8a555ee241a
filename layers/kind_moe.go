package layers

import (
	"mt/device"
	"mt/layers/schedule"
	"mt/model"
)

// moeKind is the kind of the second half of a decoder block with experts. Part 0 is the norm and the router; every
// other part is one expert, and a shared expert is the last.
type moeKind struct{ plainKind }

// Stages returns the router's visit, the experts' visits, and a second visit to the router's tile. The backward visits
// the experts in reverse, starting with the last ones of the forward. Micro-batches pass one by one only at the
// router's two visits, so there are two sweeps over them; an expert takes all at once.
func (moeKind) Stages(s Spec, l model.Layout) schedule.Layer {
	parts, combine := l.Parts(), schedule.Output
	if s.Config.NormsExperts() {
		combine |= schedule.Weights | schedule.Input
	}
	if s.passengers().width > 0 {
		combine |= schedule.Input
	}
	up := []schedule.Visit{{Stage: schedule.Route, Parts: parts, Uses: schedule.Weights | schedule.Input}}
	down := []schedule.Visit{{Stage: schedule.Route, Parts: parts, Turn: 1, Uses: schedule.Weights | schedule.Input | schedule.ReadsGrad}}
	for k := 1; k < parts; k++ {
		up = append(up, schedule.Visit{Stage: schedule.Expert, Part: k, Parts: parts, Uses: schedule.Weights})
		down = append(down, schedule.Visit{Stage: schedule.Expert, Part: parts - k, Parts: parts, Uses: schedule.Weights | schedule.AccumulatesGrad})
	}
	up = append(up, schedule.Visit{Stage: schedule.Combine, Parts: parts, Turn: 1, Uses: combine})
	down = append(down, schedule.Visit{Stage: schedule.Combine, Parts: parts,
		Uses: schedule.Weights | schedule.AccumulatesGrad | schedule.Input | schedule.UpdatesGradInPlace})
	return schedule.Layer{Tiles: parts, Sweeps: 2, Forward: up, Backward: down, Evaluate: up}
}

func (moeKind) Parts(_ Spec, l model.Layout) int { return l.Parts() }

func (moeKind) Part(_ Spec, l model.Layout, k int) Tile {
	at, part := l.PartRange(k), l.Part(k)
	return Tile{Layer: l.Index, Part: k, Layout: part, Copies: []Copy{{Layer: l.Index, From: at.TileOff, Bytes: at.TileBytes}},
		Grad: []Range{{To: at.Elem, Elems: part.GradElems}}}
}

// Largest returns the indices of three parts: the router, the first expert and the last part. Only a shared expert,
// which is the last part, may differ in size from the other experts.
func (moeKind) Largest(_ Spec, l model.Layout) []int { return []int{0, 1, l.Parts() - 1} }

// SavedBytes returns the size of the experts' summed output if the model norms this sum, because the norm's backward
// reads its input. Otherwise it returns 0.
func (moeKind) SavedBytes(s Spec, _ int, _ Keep, tokens int) int64 {
	if !s.Config.NormsExperts() {
		return 0
	}
	a := allotter{dry: true}
	a.take(s.Act, tokens*s.Config.HiddenSize)
	return a.used
}

func (moeKind) WorkspaceBytes(s Spec, backward bool) int64 { return s.moeWorkspaceBytes(backward) }

func (moeKind) Launch(t *Templates, x *Launch) {
	s, backward := x.Stream, x.Visit.Phase == schedule.Backward
	switch {
	case x.Visit.Stage == schedule.Expert && backward:
		t.ExpertBackward(s, x.Weights, x.Grads, x.Experts, x.From, x.Pairs, x.Workspace)
	case x.Visit.Stage == schedule.Expert:
		t.ExpertForward(s, x.Weights, x.Experts, x.From, x.Pairs, x.Workspace)
	case x.Visit.Stage == schedule.Combine && backward:
		t.MoERouteBackward(s, x.Weights, x.Grads, x.Grad, x.In, x.At, x.MicroBatch, x.Experts, x.Saved, x.Workspace, x.First, x.AuxScale)
		if x.Last {
			t.ExpertScalesGrad(s, x.Grads, x.Experts, x.BatchTokens)
		}
	case x.Visit.Stage == schedule.Combine:
		var saved device.Mem
		if x.Visit.Phase == schedule.Forward {
			saved = x.Saved
		}
		t.Combine(s, x.Weights, x.Out, x.In, x.At, x.MicroBatch, x.Experts, saved, x.Workspace)
	case backward:
		t.MoERouteAgain(s, x.Weights, x.Grad, x.In, x.At, x.MicroBatch, x.Experts, x.Saved, x.Workspace)
	default:
		if x.First && x.Balances {
			s.Zero(x.Experts.ProbSum.Mem())
		}
		t.MoERoute(s, x.Weights, x.In, x.At, x.MicroBatch, x.Experts, x.Workspace, !x.Balances)
	}
	if x.Visit.Stage == schedule.Route && x.Last {
		t.MoESort(s, x.Experts, x.BatchTokens, !backward && x.Balances)
	}
}
