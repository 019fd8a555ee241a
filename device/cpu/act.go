package cpu

import (
	"unsafe"

	"mt/device"
	"mt/device/cpu/vec"
)

// act is a tensor of the compute dtype, fp32 or bf16, as operations read and write it. They compute
// in fp32: in place on an fp32 tensor, and on a converted copy of a bf16 tensor.
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

// load returns n elements as fp32, beginning with element off. For an fp32 tensor they are the tensor's own memory. For
// a bf16 tensor they are a converted copy in buffer number buf of sc.
func (a act) load(sc *scratch, buf, off, n int) []float32 {
	if !a.bf16 {
		return a.f32(off, n)
	}
	x := sc.f32(buf, n)
	vec.Widen(x, a.u16(off, n))
	return x
}

// target returns fp32 memory for n results that belong at element off. The caller fills it and
// passes it to store. It is the tensor's own memory for fp32, and buffer number buf of sc for bf16.
func (a act) target(sc *scratch, buf, off, n int) []float32 {
	if !a.bf16 {
		return a.f32(off, n)
	}
	return sc.f32(buf, n)
}

// store rounds x to bf16 and writes it at element off. x must be the memory that target returned. For an fp32 tensor
// that memory is the tensor's own, so nothing is left to write.
func (a act) store(off int, x []float32) {
	if a.bf16 {
		vec.Narrow(a.u16(off, len(x)), x)
	}
}

// loadRows returns n rows of width elements as fp32, and the distance between the returned rows in elements. In the
// tensor the rows begin at element off, stride elements apart. The result is the tensor's own memory for fp32, and a
// copy in buffer buf of sc for bf16.
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

// put writes x at element off, rounded if the tensor is bf16. Unlike store, it takes any memory.
func (a act) put(off int, x []float32) {
	if a.bf16 {
		vec.Narrow(a.u16(off, len(x)), x)
		return
	}
	copy(a.f32(off, len(x)), x)
}
