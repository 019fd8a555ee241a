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
	Name  string // tells it from the others of its layer, in checkpoints too: "m"; "lo" is the weight's
	DType DType
	Kind  string // what such planes are called where people read of memory: "moments"
	Of    string // whose it is: "AdamW"
}

// Bytes is the size of p for layer l: it lies in the layer's flat element space.
func (p Plane) Bytes(l model.Layout) int64 { return p.DType.Bytes() * l.Elems }

// PageBytes is the alignment on the host of every layer's tile and of each of its
// planes.
const PageBytes = 4096

// Pages rounds bytes up to whole pages: what of the host's memory a layer's tile or
// plane of so many bytes takes.
func Pages(bytes int64) int64 { return (bytes + PageBytes - 1) / PageBytes * PageBytes }

// Planes say what is kept beside a parameter. Planes of one name are the same. nil
// keeps nothing: such weights are not updated.
type Planes func(model.Param) []Plane

// Of lists the planes of a layer, each once, in the order in which the parameters
// that it owns ask for them. A layer keeps them for all its elements.
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

// UpdateBytes is what an update of layer l reads and writes of its weights and of
// all that is kept beside them.
func (f Planes) UpdateBytes(l model.Layout) int64 { return 2 * (4*l.Elems + f.Bytes(l)) }

// State is the memory of a plane of one layer.
type State struct {
	Plane
	Data []byte // (Layout.Elems) aligned to its elements
}

// floats are the elements of the plane of that name, which must be fp32.
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
	Tile   []byte   // (Layout.TileBytes) hi planes (bf16) and plain fp32 planes
	Lo     []uint16 // (Layout.Elems) signed lower halves of split weights; nil where there are none
}

// Unit is the least of a layer that is updated at once: elements of one tensor.
type Unit struct {
	Tensor int
	At, N  int64 // N elements from element At of the tensor on
}

// Rate is what distinguishes one update from another.
type Rate struct {
	LR   float64
	Step int64   // updates made, this one included: 1 is the first
	Clip float32 // the gradient's factor; 1 leaves it as it is
}

// Optimizer is a recipe for updates: hyperparameters without state. Values of it
// can be compared.
type Optimizer interface {
	// Planes are what the optimizer keeps beside p.
	Planes(p model.Param) []Plane
	// Units cuts the tensors that l owns, in order, into units: together they are
	// all elements, once.
	Units(l model.Layout) []Unit
	// At prepares updates at a rate.
	At(r Rate) Update
}

// Update moves units by an optimizer at one rate. Its methods may be called from
// several goroutines, for different units.
type Update interface {
	// Step moves unit u of a layer by the gradient of the unit's tensor. Among
	// planes are those that the optimizer asked for.
	Step(u Unit, w Weight, planes []State, grad Grad)
}
