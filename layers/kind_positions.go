package layers

import (
	"mt/layers/schedule"
	"mt/model"
)

// positionsKind is the kind of learned positions.
type positionsKind struct{ plainKind }

func (positionsKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.Positions) }

// WorkspaceBytes returns the size of one chunk of hidden states if these are on the host; 0 if they are on the device.
func (positionsKind) WorkspaceBytes(s Spec, _ bool) int64 {
	if !s.Config.LearnedPositions {
		return 0
	}
	ws := allotter{dry: true}
	s.positionsSpace(newDims(s), s.MaxTokens, &ws)
	return ws.used
}

func (positionsKind) Launch(t *Templates, x *Launch) {
	if x.Visit.Phase == schedule.Backward {
		t.PositionsBackward(x.Stream, x.Grads, x.Grad, x.MicroBatch, x.Workspace, x.First)
		return
	}
	t.PositionsForward(x.Stream, x.Weights, x.Out, x.In, x.MicroBatch, x.Workspace)
}
