package optim

import (
	"fmt"
	"unsafe"
)

// Grad is a gradient in host memory, of a layer's flat element space, of one
// tensor, or of some rows of one.
type Grad struct {
	Data  []byte // Elems elements, aligned to their size
	BF16  bool   // the elements are bf16, else fp32
	Elems int64
	// Sparse: Data has the rows IDs of a tensor, which rise strictly. The gradients
	// of all other rows are zero.
	Sparse bool
	IDs    []int32
}

// OfRows is g as the gradient of the rows ids of a table.
func (g Grad) OfRows(ids []int32) Grad {
	g.Sparse, g.IDs = true, ids
	return g
}

// size is the number of bytes of an element.
func (g Grad) size() int64 {
	if g.BF16 {
		return 2
	}
	return 4
}

// kind is the kind of gradient that a kernel has to read.
func (g Grad) kind() gradKind {
	if g.BF16 {
		return gradBF16
	}
	return gradF32
}

// Check panics unless g has at least elems elements and the memory for them. The
// message begins with what.
func (g Grad) Check(what string, elems int64) {
	if g.Elems < elems || int64(len(g.Data)) < g.Elems*g.size() {
		panic(fmt.Sprintf("optim: %s: gradient of %d elements in %d bytes, wanted %d elements", what, g.Elems, len(g.Data), elems))
	}
	if p := unsafe.Pointer(unsafe.SliceData(g.Data)); uintptr(p)%uintptr(g.size()) != 0 {
		panic(fmt.Sprintf("optim: %s: gradient at %#x is not aligned", what, uintptr(p)))
	}
}

// at points to element i.
func (g Grad) at(i int64) *byte { return &g.Data[i*g.size()] }

// Part is the n elements of g from element at on.
func (g Grad) Part(at, n int64) Grad {
	size := g.size()
	return Grad{Data: g.Data[at*size : (at+n)*size], BF16: g.BF16, Elems: n}
}

// View is the memory b as elements of type E. It panics where b is not aligned for
// them.
func View[E uint16 | float32](b []byte) []E {
	var e E
	size := int(unsafe.Sizeof(e))
	if len(b) == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%uintptr(size) != 0 || len(b)%size != 0 {
		panic(fmt.Sprintf("optim: %d bytes at %#x are not elements of %d bytes", len(b), uintptr(p), size))
	}
	return unsafe.Slice((*E)(p), len(b)/size)
}
