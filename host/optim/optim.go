package optim

import "mt/model"

// Weight is the memory of one layer's weights.
type Weight struct {
	Layout *model.Layout
	Tile   []byte   // (Layout.TileBytes) bf16 hi planes and plain fp32 planes
	Lo     []uint16 // signed lower halves of split weights, from element From on; nil: no split weights
	Seed   uint64   // seed of stochastic rounding for weights without lower halves (Layout.BF16Master)
	// From is the number of the first element of the rank's share, counted over all tensors of the layer one after the
	// other (the flat element space). Lo and the planes beside the weights begin with this element.
	From  int64
	Means []Mean // the moving average of the weights: one or none
}

// Unit is the smallest part of a layer that is updated at a time: a range of elements of one tensor.
type Unit struct {
	Tensor int
	At, N  int64 // N elements of the tensor from element At on
}

// Rate has the values that change from one update to the next.
type Rate struct {
	LR   float64
	Step int64   // the number of this update; the first is 1
	Clip float32 // factor of the gradient; 1: no clipping
}

// Optimizer is a recipe for updates: hyperparameters without state. Optimizers can be compared with ==.
type Optimizer interface {
	// Planes returns the planes (arrays of state) that the optimizer keeps for piece p.
	Planes(p Piece) []Plane
	// Units cuts the tensors that l owns into units, in order. Every element is in one unit. If several elements share
	// a value of a plane, as in quantized moments, they are in the same unit.
	Units(l model.Layout) []Unit
	// At returns the update of units with learning rate, step and clipping factor r.
	At(r Rate) Update
}

// Update updates units of layers, at the Rate for which Optimizer.At has made it. Concurrent calls for different units
// are safe.
type Update interface {
	// Step updates unit u of a layer. grad has the gradient of the unit's elements or, if it is sparse, of some rows of
	// the unit's tensor. planes must include the planes that the optimizer requires.
	Step(u Unit, w Weight, planes []State, grad Grad)
}
