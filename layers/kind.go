package layers

import (
	"mt/layers/schedule"
	"mt/model"
)

// Kind says what a run has to know of the layers of one kind before it runs. There is one
// file for each kind; decoder blocks and their first halves share one. What plans, fetches, offloads or generates asks the kind and does not
// distinguish kinds itself. All answers follow from the Spec of the run and the layout of
// the layer; bytes are of device memory.
type Kind interface {
	// Stages are the visits that the passes make to a layer.
	Stages(s Spec, l model.Layout) schedule.Layer
	// Class says through which slots its tiles go.
	Class(s Spec) schedule.Class
	// Parts is how many tiles a layer has, and Part is number k of them.
	Parts(s Spec, l model.Layout) int
	Part(s Spec, l model.Layout, k int) Tile
	// Largest lists parts, with the one that has the largest slot and the one that has
	// the largest gradient among them.
	Largest(s Spec, l model.Layout) []int
	// RowElems is the size of a row, in elements, where a layer's gradient has only the
	// rows that a batch uses; 0: it has all the layer's tensors.
	RowElems(l model.Layout) int64
	// Activations is how many hidden states of a micro-batch a layer has: its input and,
	// where a gradient is made beside it, the gradient.
	Activations(s Spec) int
	// SavedBytes is what the forward of a micro-batch of so many tokens keeps for its
	// backward at a level. 0: nothing but its input.
	SavedBytes(s Spec, keep Keep, tokens int) int64
	// WorkspaceBytes is what one launch needs, of at most Spec.MaxTokens tokens; 0 where
	// it needs none or the model has no such layer. Without backward it is that of a
	// forward which keeps nothing.
	WorkspaceBytes(s Spec, backward bool) int64
	// Launch enqueues one launch of a visit to a layer.
	Launch(t *Templates, x *Launch)
	// CacheBytes is the size of a layer's key/value cache of so many tokens, for
	// generation.
	CacheBytes(s Spec, maxTokens int) int64
}

// kinds has the Kind of every model.LayerKind.
var kinds = [...]Kind{model.Embedding: embeddingKind{}, model.Positions: positionsKind{}, model.Block: blockKind{mlp: true}, model.Attention: blockKind{},
	model.MoE: moeKind{}, model.Recurrent: blockKind{mlp: true, recurrent: true}, model.Mixer: blockKind{recurrent: true}, model.Head: headKind{}}

// KindOf returns the Kind of the layers that model calls k.
func KindOf(k model.LayerKind) Kind { return kinds[k] }

// plainKind is what most kinds have in common: one tile that takes turns in the
// weight slots, a gradient of all its tensors, and no memory of its own.
type plainKind struct{}

func (plainKind) Class(Spec) schedule.Class        { return schedule.Streamed }
func (plainKind) Parts(Spec, model.Layout) int     { return 1 }
func (plainKind) Largest(Spec, model.Layout) []int { return []int{0} }
func (plainKind) RowElems(model.Layout) int64      { return 0 }
func (plainKind) Activations(Spec) int             { return 1 }
func (plainKind) SavedBytes(Spec, Keep, int) int64 { return 0 }
func (plainKind) WorkspaceBytes(Spec, bool) int64  { return 0 }
func (plainKind) CacheBytes(Spec, int) int64       { return 0 }

// Part is the whole layer. Its own bytes are copied in one piece; a tensor that it shares
// with the embedding is copied from the embedding's tile.
func (plainKind) Part(_ Spec, l model.Layout, _ int) Tile {
	t := Tile{Layer: l.Index, Layout: l, Grad: []Range{{Elems: l.GradElems}}}
	if l.TileBytes > 0 {
		t.Copies = []Copy{{Layer: l.Index, Bytes: l.TileBytes}}
	}
	for _, x := range l.Tensors {
		if x.Ref {
			t.Copies = append(t.Copies, Copy{Layer: 0, To: x.TileOff, Bytes: x.TileBytes()})
		}
	}
	return t
}

// once is a layer that every pass visits once: forward it makes its output from its input,
// backward it turns the gradient of the output into that of the input.
func once(stage schedule.Stage) schedule.Layer {
	up := []schedule.Visit{{Stage: stage, Parts: 1, Uses: schedule.Weights | schedule.Input | schedule.Output}}
	down := []schedule.Visit{{Stage: stage, Parts: 1, Uses: schedule.Weights | schedule.Sums | schedule.Input | schedule.Turns}}
	return schedule.Layer{Tiles: 1, Sweeps: 1, Forward: up, Backward: down, Evaluate: up}
}
