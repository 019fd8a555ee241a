package optim

import "mt/model"

// Weight is the memory of the weights of one layer.
type Weight struct {
	Layout *model.Layout
	Tile   []byte   // (Layout.TileBytes) bf16 hi planes and plain fp32 planes
	Lo     []uint16 // the signed lower halves of split weights, from element From on; nil where the layer has none
	Seed   uint64   // of the rounding of weights without lower halves (Layout.BF16Master)
	// From is the element of the flat element space with which Lo, and the planes beside the
	// weight, begin: the first of the rank's share.
	From  int64
	Means []Mean // the averages that are kept of the weights: one, or none
}

// Unit is the smallest piece of a layer that is updated at a time: elements of one
// tensor.
type Unit struct {
	Tensor int
	At, N  int64 // N elements from element At of the tensor on
}

// Rate is what differs between the updates of a run.
type Rate struct {
	LR   float64
	Step int64   // the number of updates including this one: 1 for the first
	Clip float32 // the factor of the gradient; 1 leaves it as it is
}

// Optimizer is a recipe for updates: hyperparameters without state. Two Optimizers
// can be compared with ==.
type Optimizer interface {
	// Planes are the planes that the optimizer keeps beside p.
	Planes(p Piece) []Plane
	// Units cuts the tensors that l owns, in order, into units. Together the units
	// have every element once. A unit begins with a block of every plane that its piece has, and so does
	// what is behind it.
	Units(l model.Layout) []Unit
	// At prepares updates at one rate.
	At(r Rate) Update
}

// Update moves units as an optimizer says, at one rate. Several goroutines may call
// its methods at the same time, for different units.
type Update interface {
	// Step moves unit u of a layer, given the gradient of the unit's elements or, where it is
	// sparse, of rows of the unit's tensor. The planes that the optimizer asked for must be
	// among planes.
	Step(u Unit, w Weight, planes []State, grad Grad)
}
