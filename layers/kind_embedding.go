package layers

import (
	"mt/layers/schedule"
	"mt/model"
)

// embeddingKind is the kind of the embedding. The whole table is never copied to the device. A batch brings the rows of
// its token ids, and the gradient has only these rows.
type embeddingKind struct{ plainKind }

func (embeddingKind) Stages(Spec, model.Layout) schedule.Layer {
	up := []schedule.Visit{{Stage: schedule.Embed, Parts: 1, Uses: schedule.Output}}
	down := []schedule.Visit{{Stage: schedule.Embed, Parts: 1, Uses: schedule.AccumulatesGrad | schedule.UpdatesGradInPlace}}
	return schedule.Layer{Tiles: 1, Sweeps: 1, Class: schedule.NoSlot, Forward: up, Backward: down, Evaluate: up}
}

func (embeddingKind) Class(Spec) schedule.Class { return schedule.NoSlot }

func (k embeddingKind) Part(_ Spec, l model.Layout, _ int) Tile {
	return Tile{Layer: l.Index, Layout: l, row: k.RowElems(l)}
}

// RowElems returns the width of the table, the layer's only tensor; 0 if it is frozen.
func (embeddingKind) RowElems(l model.Layout) int64 {
	if l.Tensors[0].Frozen {
		return 0
	}
	return int64(l.Tensors[0].Cols)
}

// Activations returns 0: the input is token ids, not a hidden state.
func (embeddingKind) Activations(Spec) int { return 0 }

// WorkspaceBytes returns the size of the chunks and the gradient columns (embedSpace) that a launch needs if hidden
// states are on the host or the embedding is normed; else 0.
func (embeddingKind) WorkspaceBytes(s Spec, backward bool) int64 {
	ws := allotter{dry: true}
	s.embedSpace(newDims(s), s.MaxTokens, backward, &ws)
	return ws.used
}

func (embeddingKind) Launch(t *Templates, x *Launch) {
	switch x.Visit.Phase {
	case schedule.Backward:
		t.EmbedBackward(x.Stream, x.Grads[model.RoleEmbed], x.Rows, x.Grad, x.MicroBatch, x.Workspace, x.First)
	case schedule.Forward:
		t.EmbedForward(x.Stream, x.Out, x.Rows, x.MicroBatch, x.Step, x.Workspace)
	default: // no noise
		t.EmbedForward(x.Stream, x.Out, x.Rows, x.MicroBatch, 0, x.Workspace)
	}
}
