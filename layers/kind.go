package layers

import (
	"mt/layers/schedule"
	"mt/model"
)

// Kind describes the layers of one kind before a run. Each kind has a file; decoder blocks and
// their first halves share one. Code that plans, fetches, offloads or generates asks the Kind and
// does not distinguish kinds itself. All results follow from the run's Spec and the layer's layout;
// bytes are of device memory.
type Kind interface {
	// Stages returns the visits of the passes to a layer.
	Stages(s Spec, l model.Layout) schedule.Layer
	// Class returns the class of slots for the layer's tiles.
	Class(s Spec) schedule.Class
	// Parts returns the number of tiles of a layer, and Part returns tile k.
	Parts(s Spec, l model.Layout) int
	Part(s Spec, l model.Layout, k int) Tile
	// Largest returns the indices of some parts of the layer. Among them are a part with the
	// largest tile in a slot and a part with the largest gradient, so buffers can be sized from
	// these parts alone.
	Largest(s Spec, l model.Layout) []int
	// RowElems returns the width of a row if the layer's gradient has only the rows that a batch uses, as the
	// embedding's has. 0: the gradient has all of the layer's tensors.
	RowElems(l model.Layout) int64
	// Activations returns how many hidden states of a micro-batch a layer has: its input, and a gradient if the
	// gradient does not overwrite the input.
	Activations(s Spec) int
	// SavedBytes returns how many bytes the forward of a micro-batch keeps for its backward,
	// besides the layer's input. Level keep says which tensors are kept, block is the number of the
	// layer's decoder block, and tokens the size of the micro-batch.
	SavedBytes(s Spec, block int, keep Keep, tokens int) int64
	// WorkspaceBytes returns how many bytes of workspace one launch of at most Spec.MaxTokens tokens needs; 0: none, or
	// the model has no such layer. Without backward it is for a forward that keeps nothing, as in an evaluation.
	WorkspaceBytes(s Spec, backward bool) int64
	// Launch enqueues one launch of a visit to a layer.
	Launch(t *Templates, x *Launch)
	// CacheBytes returns the size of the key/value cache for maxTokens tokens of a layer of the given decoder block,
	// for generation.
	CacheBytes(s Spec, block, maxTokens int) int64
}

// kinds maps each model.LayerKind to its Kind.
var kinds = [...]Kind{model.Embedding: embeddingKind{}, model.Positions: positionsKind{}, model.PerLayer: perLayerKind{}, model.Block: blockKind{mlp: true}, model.Attention: blockKind{},
	model.MoE: moeKind{}, model.MLP: mlpKind{}, model.Recurrent: blockKind{mlp: true, recurrent: true}, model.Mixer: blockKind{recurrent: true},
	model.AheadInput: aheadInputKind{}, model.AheadNorm: aheadNormKind{}, model.Head: headKind{}}

// KindOf returns the Kind of layers of kind k.
func KindOf(k model.LayerKind) Kind { return kinds[k] }

// plainKind is the default of most kinds: one streamed tile, a gradient of all tensors, and no memory of its own.
type plainKind struct{}

func (plainKind) Class(Spec) schedule.Class             { return schedule.Streamed }
func (plainKind) Parts(Spec, model.Layout) int          { return 1 }
func (plainKind) Largest(Spec, model.Layout) []int      { return []int{0} }
func (plainKind) RowElems(model.Layout) int64           { return 0 }
func (plainKind) Activations(Spec) int                  { return 1 }
func (plainKind) SavedBytes(Spec, int, Keep, int) int64 { return 0 }
func (plainKind) WorkspaceBytes(Spec, bool) int64       { return 0 }
func (plainKind) CacheBytes(Spec, int, int) int64       { return 0 }

// Part returns the whole layer. Its own bytes are copied in one piece; a tensor shared with the embedding is copied
// from the embedding's tile.
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

// once returns the visits of a layer that each pass visits once, as a stage of the given name. The
// forward computes the output from the input; the backward turns the output's gradient into the
// input's.
func once(stage schedule.Stage) schedule.Layer {
	up := []schedule.Visit{{Stage: stage, Parts: 1, Uses: schedule.Weights | schedule.Input | schedule.Output}}
	down := []schedule.Visit{{Stage: stage, Parts: 1, Uses: schedule.Weights | schedule.AccumulatesGrad | schedule.Input | schedule.UpdatesGradInPlace}}
	return schedule.Layer{Tiles: 1, Sweeps: 1, Forward: up, Backward: down, Evaluate: up}
}
