package cpu

import (
	"unsafe"

	"mt/device"
	"mt/device/cpu/vec"
)

// act is a tensor of the compute type. fp32 elements are used in place, bf16
// elements by way of a buffer.
type act struct {
	addr uintptr
	bf16 bool
}

func actOf(t device.Tensor) act { return act{t.Addr, t.DType == device.BF16} }

func (a act) f32(off, n int) []float32 {
	return unsafe.Slice((*float32)(pointer(a.addr+uintptr(4*off))), n)
}

func (a act) u16(off, n int) []uint16 {
	return unsafe.Slice((*uint16)(pointer(a.addr+uintptr(2*off))), n)
}

// load returns the n elements from off on as fp32. In fp32 that is the tensor's own
// memory, else a copy in buffer buf of sc.
func (a act) load(sc *scratch, buf, off, n int) []float32 {
	if !a.bf16 {
		return a.f32(off, n)
	}
	x := sc.f32(buf, n)
	vec.Widen(x, a.u16(off, n))
	return x
}

// target returns room for n elements which store will put at off. In fp32 that is
// the tensor's own memory, else buffer buf of sc.
func (a act) target(sc *scratch, buf, off, n int) []float32 {
	if !a.bf16 {
		return a.f32(off, n)
	}
	return sc.f32(buf, n)
}

// store puts x, which was written to a target, into the tensor at off, rounded for
// bf16.
func (a act) store(off int, x []float32) {
	if a.bf16 {
		vec.Narrow(a.u16(off, len(x)), x)
	}
}

// loadRows returns n rows of width elements as fp32, and the distance between them.
// The rows begin at off and are stride apart. In fp32 they are the tensor's own
// memory, else a copy in buffer buf of sc.
func (a act) loadRows(sc *scratch, buf, off, n, stride, width int) ([]float32, int) {
	if n == 0 || width == 0 {
		return nil, stride
	}
	if !a.bf16 {
		return a.f32(off, (n-1)*stride+width), stride
	}
	x := sc.f32(buf, n*width)
	for r := range n {
		vec.Widen(x[r*width:(r+1)*width], a.u16(off+r*stride, width))
	}
	return x, width
}

// put writes x at off, rounded for bf16.
func (a act) put(off int, x []float32) {
	if a.bf16 {
		vec.Narrow(a.u16(off, len(x)), x)
		return
	}
	copy(a.f32(off, len(x)), x)
}
