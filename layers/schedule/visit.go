package schedule

// Layer is what a program has to know of one layer: its visits in each pass, in
// order. The layer's kind sets Stage, Part, Parts, Turn, Uses and Loss of each visit, with
// Turn counted from 0 at the layer's first sweep of micro-batches; New sets the rest.
type Layer struct {
	Name   string // for people
	Tiles  int    // how many tiles its weights are
	Class  Class  // which slots its tiles go through
	Sweeps int    // how many turns it counts: by so many later layers' turns are shifted
	// Forward and Backward are those of a training step, Evaluate those of an
	// evaluation. With the last of Backward that sums up a gradient, the layer's gradient is complete. A layer without
	// Backward ends the backward of all layers below it, which have none either.
	Forward, Backward, Evaluate []Visit
}

// Visit is one stay of a layer, or of a part of it, on the device: all
// micro-batches go through it.
type Visit struct {
	Phase Phase
	Layer int
	Stage Stage
	Part  int // which part of the layer: a range of the head's vocabulary; the router or an expert
	Parts int // how many parts the layer has; 1: it is whole
	Tile  int // which tile it reads: they are numbered from the embedding's on, in a layer in the order of its parts
	Class Class
	Uses  Uses
	Turn  int // odd, in a zigzag: it takes the micro-batches from the last to the first
	First int // index of its first launch
	// Take: the tile must be fetched; else an earlier visit left it in its slot.
	Take bool
	// Release: the tile's slot is free after the visit; else a later visit uses the tile.
	Release bool
	// Loss: the losses of the pass are complete after it.
	Loss bool
	// Complete: the gradient of the layer is complete after it. No visit has it where the layer is frozen.
	Complete bool
}

// Uses says what a visit's launches use: its tile, and activations.
type Uses uint8

// The uses.
const (
	Weights            Uses = 1 << iota // reads the weights of its tile
	AccumulatesGrad                     // sums up the gradient of its tile
	Input                               // reads the layer's input
	Output                              // makes the layer's output
	AllocatesGrad                       // makes a gradient that lies beside the layer's input, not in its place
	UpdatesGradInPlace                  // turns the gradient of the layer's output into that of its input, in place
	ReadsGrad                           // reads the gradient of the layer's output
)

// Has says whether all of v are among u.
func (u Uses) Has(v Uses) bool { return u&v == v }

// Phase is what a visit to a layer is for.
type Phase uint8

// The phases. The visit of a whole head in training is Forward and Backward at
// once and counts as Backward; a head in parts has visits for each.
const (
	Forward Phase = iota
	Backward
	Evaluate
	Generate // of a sequence that grows: no pass has it
)

func (p Phase) String() string { return [...]string{"forward", "backward", "evaluate", "generate"}[p] }

// Stage is what a visit does for its layer.
type Stage uint8

// The stages. Those of a layer with experts follow each other in this order, in
// every phase.
const (
	Embed     Stage = iota
	Positions       // learned positions are added to the embedding
	Block           // a decoder block
	Attention       // the first half of a block with experts
	Route           // the router (part 0) decides which tokens go to which experts
	Expert          // one expert (part 1, 2, …) serves its tokens, of all micro-batches at once
	Combine         // the sum of the experts' outputs becomes the layer's; in the backward: router and norm go backward
	Head            // all of the head
	HeadPart        // a range of the vocabulary
)

func (s Stage) String() string {
	return [...]string{"embed", "positions", "block", "attention", "route", "expert", "combine", "head", "head part"}[s]
}

// Class says which slots a tile of weights goes through.
type Class uint8

// The classes.
const (
	Streamed Class = iota // the slots that blocks, experts and parts of the head share
	Whole                 // the slot that a whole head has to itself
	NumClasses
	NoSlot // none, for the embedding: the rows that a batch uses come with the batch
)

// Grad says whether the visit computes the gradient of its tile's weights.
func (v Visit) Grad() bool { return v.Uses.Has(AccumulatesGrad) }

// Weighs says whether the visit reads weights of its tile.
func (v Visit) Weighs() bool { return v.Uses.Has(Weights) }

// FirstPart says whether the visit is the first of its sweep over the parts of the head.
// The sweep of the backward goes from the last part to the first.
func (v Visit) FirstPart() bool { return v.Part == v.edge(v.Phase == Backward) }

// LastPart says whether the visit is the last of its sweep.
func (v Visit) LastPart() bool { return v.Part == v.edge(v.Phase != Backward) }

// edge is the last part of the layer where top is set, else the first.
func (v Visit) edge(top bool) int {
	if top {
		return v.Parts - 1
	}
	return 0
}
