package schedule

// Layer is what a program has to know of one layer: its visits in each pass, in
// order. Of a visit its kind gives Stage, Part, Parts, Turn, counted from the first
// sweep of micro-batches through the layer, Uses and Loss.
type Layer struct {
	Name   string // to people
	Tiles  int    // how many its weights are
	Class  Class  // where those go
	Sweeps int    // turns of the micro-batches that it counts
	// Forward and Backward are those of a training step, Evaluate those of an
	// evaluation. With the last of Backward the layer's gradient is complete.
	Forward, Backward, Evaluate []Visit
}

// Visit is one stay of a layer, or of a part of it, on the device: all
// micro-batches go through it.
type Visit struct {
	Phase Phase
	Layer int
	Stage Stage
	Part  int // which part of the layer: of the head's vocabulary; the router or an expert
	Parts int // into how many the layer is cut; 1: it is whole
	Tile  int // its weights: tiles are numbered from the embedding's on, those of a layer in the order of its parts
	Class Class
	Uses  Uses
	Turn  int // odd: it takes the micro-batches backward
	First int // its first launch
	// Take: the weights must be fetched; else an earlier visit left them.
	Take bool
	// Release: the slot is free after the visit.
	Release bool
	// Loss: the losses of the pass are complete after it.
	Loss bool
	// Complete: the gradient of the layer is complete after it.
	Complete bool
}

// Uses says what a visit's launches use: its tile, and activations.
type Uses uint8

// The uses.
const (
	Weights Uses = 1 << iota // reads the weights of its tile
	Sums                     // sums up the gradient of its tile
	Input                    // reads the layer's input
	Output                   // makes the layer's output
	Makes                    // makes a gradient, beside the layer's input
	Turns                    // turns the gradient of the layer's output into that of its input, in place
	Reads                    // reads the gradient of the layer's output
)

// Has says whether all of v are among u.
func (u Uses) Has(v Uses) bool { return u&v == v }

// Phase is what a visit to a layer is for.
type Phase uint8

// The phases. The visit of a whole head in training is Forward and Backward at
// once and counts as Backward; a head in parts has visits for either.
const (
	Forward Phase = iota
	Backward
	Evaluate
)

func (p Phase) String() string { return [...]string{"forward", "backward", "evaluate"}[p] }

// Stage is what a visit does for its layer.
type Stage uint8

// The stages. Those of a layer with experts follow each other in this order, in
// every phase.
const (
	Embed     Stage = iota
	Block           // a decoder block
	Attention       // the first half of a block with experts
	Route           // the router (part 0) says which tokens go to which experts
	Expert          // one expert (part 1, 2, …) serves its tokens, of all micro-batches at once
	Join            // what the experts made becomes the output; in the backward the router's and the norm's turn
	Head            // all of the head
	HeadPart        // a range of the vocabulary
)

func (s Stage) String() string {
	return [...]string{"embed", "block", "attention", "route", "expert", "join", "head", "head part"}[s]
}

// Class says which slots a tile of weights goes through.
type Class uint8

// The classes.
const (
	Streamed Class = iota // the slots that blocks, experts and parts of the head share
	Whole                 // the slot that a whole head has to itself
	NumClasses
	NoSlot // the embedding: the rows that a batch uses come with the batch
)

// Grad says whether the visit computes a gradient of weights.
func (v Visit) Grad() bool { return v.Uses.Has(Sums) }

// Weighs says whether the visit reads weights of its tile.
func (v Visit) Weighs() bool { return v.Uses.Has(Weights) }

// FirstPart says whether the visit is the first of its sweep over the parts of the
// head; the second sweep goes backward.
func (v Visit) FirstPart() bool { return v.Part == v.edge(v.Phase == Backward) }

// LastPart says whether the visit is the last of its sweep.
func (v Visit) LastPart() bool { return v.Part == v.edge(v.Phase != Backward) }

func (v Visit) edge(top bool) int {
	if top {
		return v.Parts - 1
	}
	return 0
}
