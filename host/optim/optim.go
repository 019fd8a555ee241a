package optim

import (
	"fmt"
	"slices"

	"mt/model"
)

// DType is the type of a plane's elements.
type DType uint8

// The types that planes have.
const (
	F32 DType = iota
)

// Bytes is the size of an element.
func (d DType) Bytes() int64 { return [...]int64{F32: 4}[d] }

func (d DType) String() string { return [...]string{F32: "fp32"}[d] }

// Plane is one value for every element of a layer, kept beside its weight.
type Plane struct {
	Name  string // unique among the planes of a layer, and used in checkpoints: "m"; "lo" is the weight's
	DType DType
	Kind  string // what such planes are called where memory is listed for people: "moments"
	Of    string // who keeps it: "AdamW"
}

// Bytes is the size of p for layer l. A plane has a value for each element of the
// layer's flat element space.
func (p Plane) Bytes(l model.Layout) int64 { return p.DType.Bytes() * l.Elems }

// PageBytes is the alignment in bytes, in host memory, of every layer's tile and of
// each of its planes.
const PageBytes = 4096

// Pages rounds bytes up to whole pages. That is how much host memory a tile or a
// plane of that size takes.
func Pages(bytes int64) int64 { return (bytes + PageBytes - 1) / PageBytes * PageBytes }

// Planes says which planes are kept beside a parameter. Planes with the same name
// are the same. With nil none are kept, and weights cannot be updated.
type Planes func(model.Param) []Plane

// Of lists the planes of a layer. Each is listed once, in the order in which the
// parameters that the layer owns ask for them. A layer keeps a plane for all its
// elements.
func (f Planes) Of(l model.Layout) []Plane {
	var out []Plane
	for _, t := range l.Tensors {
		if f == nil || t.Ref {
			continue
		}
		for _, p := range f(t.Param) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// Bytes is the size of all planes of a layer.
func (f Planes) Bytes(l model.Layout) (bytes int64) {
	for _, p := range f.Of(l) {
		bytes += p.Bytes(l)
	}
	return bytes
}

// UpdateBytes is how many bytes an update of layer l reads and writes: the weights
// and all planes beside them.
func (f Planes) UpdateBytes(l model.Layout) int64 { return 2 * (4*l.Elems + f.Bytes(l)) }

// State is the memory of a plane of one layer.
type State struct {
	Plane
	Data []byte // of the rank's share, or the whole layer, aligned to its elements
}

// floats are the elements of the plane of that name, which must be there and be
// fp32.
func floats(planes []State, name string) []float32 {
	for i := range planes {
		if p := &planes[i]; p.Name == name && p.DType == F32 {
			return View[float32](p.Data)
		}
	}
	panic(fmt.Sprintf("optim: an update of weights without the plane %q", name))
}

// Weight is the memory of the weights of one layer.
type Weight struct {
	Layout *model.Layout
	Tile   []byte   // (Layout.TileBytes) bf16 hi planes and plain fp32 planes
	Lo     []uint16 // the signed lower halves of split weights, from element From on; nil where the layer has none
	// From is the element of the flat element space with which Lo, and the planes beside the
	// weight, begin: the first of the rank's share.
	From int64
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
	Planes(p model.Param) []Plane
	// Units cuts the tensors that l owns, in order, into units. Together the units
	// have every element once.
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
