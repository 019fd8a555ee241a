package layers

import (
	"mt/layers/schedule"
	"mt/model"
)

// aheadInputKind is the kind of the layer that has the final norm and makes the input of the block for multi-token
// prediction.
type aheadInputKind struct{ plainKind }

func (aheadInputKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.AheadInput) }

func (aheadInputKind) WorkspaceBytes(s Spec, _ bool) int64 {
	if s.Config.Ahead == 0 {
		return 0
	}
	ws := allotter{dry: true}
	s.aheadSpace(s.MaxTokens, &ws)
	return ws.used
}

func (aheadInputKind) Launch(t *Templates, x *Launch) {
	if l := t.newAhead(x); x.Visit.Phase == schedule.Backward {
		l.aheadInputBackward()
	} else {
		l.aheadInput()
	}
}

// aheadNormKind is the kind of the layer that norms that block's output.
type aheadNormKind struct{ aheadInputKind }

func (aheadNormKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.AheadNorm) }

func (aheadNormKind) Launch(t *Templates, x *Launch) {
	if l := t.newAhead(x); x.Visit.Phase == schedule.Backward {
		l.aheadNormBackward()
	} else {
		l.aheadNorm()
	}
}
