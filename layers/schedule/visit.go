package schedule

// Layer lists a layer's visits in each pass, in order. The layer's kind sets Stage, Part, Parts, Turn, Uses and Loss of
// each visit. Turn counts from 0 at the layer's first sweep (all micro-batches once, one after the other). New sets the
// other fields.
type Layer struct {
	Name   string // for messages
	Tiles  int    // number of tiles
	Lanes  []int  // by part: its lane; a lane's parts follow each other; nil: all parts are on the layer's lane (Spec.Lane)
	Class  Class  // the slots of its tiles
	Sweeps int    // number of turns, which shifts the turns of later layers
	// Forward and Backward are the visits of a training step, Evaluate the visits of an evaluation. The layer's
	// gradient is complete with the last visit of Backward that accumulates a gradient. A layer without Backward ends
	// the backward: no layer below it has one.
	Forward, Backward, Evaluate []Visit
}

// Visit is one stay of a layer or a part of it on the device. All micro-batches of a round go through it.
type Visit struct {
	Phase Phase
	Layer int
	Stage Stage
	Part  int // index of the layer's part: a range of the head's vocabulary, the router, or an expert
	Parts int // number of the layer's parts; 1: it is whole
	Tile  int // index of its tile: tiles are numbered layer by layer from the embedding, and part by part in a layer
	Class Class
	Uses  Uses
	Turn  int // its place in the zigzag; an odd turn takes the micro-batches from last to first
	Round int // the round of the step, from 0; its micro-batches are those of Spec.Round
	First int // index of its first launch
	// Take: the tile must be fetched. Otherwise an earlier visit has left it in its slot.
	Take bool
	// Release: the tile's slot is free after the visit. Otherwise a later visit uses the tile.
	Release bool
	// Loss: the losses of the pass are complete after the visit.
	Loss bool
	// Complete: the layer's gradient of this round is complete after the visit. Never set for a frozen layer.
	Complete bool
	// Resumes: the gradient of the visit's tile continues the sum of the round before. Partial: the next round
	// continues it.
	Resumes, Partial bool
}

// Uses is a set of things that a visit's launches use: its tile, activations and gradients.
type Uses uint8

// The things that launches can use.
const (
	Weights            Uses = 1 << iota // reads the weights of its tile
	AccumulatesGrad                     // adds to the gradient of its tile's weights
	Input                               // reads the layer's input
	Output                              // writes the layer's output
	AllocatesGrad                       // writes a gradient to a new object beside the layer's input
	UpdatesGradInPlace                  // replaces the gradient of the layer's output by the gradient of its input, in place
	ReadsGrad                           // reads the gradient of the layer's output
	Keeps                               // in the forward writes, in the backward reads, what the layer keeps in a slot of its own
)

// Has reports whether the set u contains everything in the set v.
func (u Uses) Has(v Uses) bool { return u&v == v }

// Phase is the purpose of a visit.
type Phase uint8

// The phases. In training, the visit of a whole head is Forward and Backward at once and counts as Backward. A head in
// parts has visits of both phases.
const (
	Forward Phase = iota
	Backward
	Evaluate
	Generate // of a growing sequence: no pass has it
)

func (p Phase) String() string { return [...]string{"forward", "backward", "evaluate", "generate"}[p] }

// Stage is the part of the layer's computation that a visit performs.
type Stage uint8

// The stages. The stages of a layer with experts follow each other in this order, in every phase.
const (
	Embed      Stage = iota
	Positions        // adds learned positions to the embedding
	PerLayer         // computes the per-layer inputs of blocks
	Block            // a decoder block
	Attention        // the first half of a block with experts
	Route            // the router (part 0) assigns tokens to experts
	Expert           // one expert (part 1, 2, …) processes its tokens of all micro-batches at once
	Combine          // the sum of the experts' outputs becomes the layer's output; in the backward: router and norm
	AheadInput       // final norm, and the input of the block for multi-token prediction
	AheadNorm        // the norm of that block's output
	Head             // the whole head
	HeadPart         // a range of the vocabulary
)

func (s Stage) String() string {
	return [...]string{"embed", "positions", "per-layer inputs", "block", "attention", "route", "expert", "combine", "ahead input", "ahead norm", "head", "head part"}[s]
}

// Class is the kind of slot for a tile of weights.
type Class uint8

// The classes of slots.
const (
	Streamed Class = iota // the slots shared by blocks, experts and parts of the head
	Whole                 // the slot of a whole head
	NumClasses
	NoSlot // none: the embedding's rows come with the batch
)

// Grad reports whether the visit computes a gradient of its tile's weights.
func (v Visit) Grad() bool { return v.Uses.Has(AccumulatesGrad) }

// Weighs reports whether the visit reads its tile's weights.
func (v Visit) Weighs() bool { return v.Uses.Has(Weights) }

// FirstPart reports whether the visit is the first in a sweep over the parts of the head. The sweep in the backward
// goes from the last part to the first.
func (v Visit) FirstPart() bool { return v.Part == v.edge(v.Phase == Backward) }

// LastPart reports whether the visit is the last of its sweep over the head's parts. In the backward this is part 0.
func (v Visit) LastPart() bool { return v.Part == v.edge(v.Phase != Backward) }

// edge returns the index of the last part of the visit's layer if top is true, and 0, the first part, otherwise.
func (v Visit) edge(top bool) int {
	if top {
		return v.Parts - 1
	}
	return 0
}
