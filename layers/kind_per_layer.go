package layers

import (
	"mt/layers/schedule"
	"mt/model"
)

// perLayerKind is the kind of the layer that computes the per-layer inputs of all blocks. Its table is copied whole.
type perLayerKind struct{ plainKind }

func (perLayerKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.PerLayer) }

func (perLayerKind) WorkspaceBytes(s Spec, backward bool) int64 {
	if s.Config.PerLayerSize == 0 {
		return 0
	}
	ws := allotter{dry: true}
	s.perLayerSpace(s.MaxTokens, backward, &ws)
	return ws.used
}

func (perLayerKind) Launch(t *Templates, x *Launch) {
	if x.Visit.Phase == schedule.Backward {
		t.PerLayerBackward(x.Stream, x.Weights, x.Grads, x.Grad.Dev, x.In.Dev, x.MicroBatch, x.Workspace, x.First)
		return
	}
	t.PerLayerForward(x.Stream, x.Weights, x.Out.Dev, x.In.Dev, x.MicroBatch, x.Workspace)
}
