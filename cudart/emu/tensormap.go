package emu

import (
	"fmt"
	"unsafe"

	"mt/cudart/emu/ptx"
)

// tensorMapSince is the oldest driver version that has cuTensorMapEncodeTiled, in the format of cuDriverGetVersion.
const tensorMapSince = 12000

// tensorMapArguments are the arguments of cuTensorMapEncodeTiled, except for the first, the address
// of the map.
type tensorMapArguments struct {
	kind, rank          uint32
	address             uint64
	sizes, strides      *uint64
	box, every          *uint32
	interleave, swizzle uint32
	promotion, fill     uint32
}

// elementBytes are the sizes of the supported element types: CU_TENSOR_MAP_DATA_TYPE_FLOAT32 (7) and _BFLOAT16 (9).
var elementBytes = map[uint32]int{7: 4, 9: 2}

// swizzleBytes maps CU_TENSOR_MAP_SWIZZLE_NONE, _32B, _64B and _128B (0 to 3) to the row size of the swizzle
// pattern in bytes; 16: no swizzle.
var swizzleBytes = []int{16, 32, 64, 128}

// tensorMap is cuTensorMapEncodeTiled.
func (d *Driver) tensorMap(to unsafe.Pointer, a *tensorMapArguments) int32 {
	m, err := a.describe()
	if err == nil && uintptr(to)%ptx.TensorMapAlign != 0 {
		err = fmt.Errorf("the map's address is no multiple of %d", ptx.TensorMapAlign)
	}
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		d.fault(Argument, "cuTensorMapEncodeTiled: %v", err)
		return errInvalidValue
	}
	*(*[ptx.TensorMapBytes]byte)(to) = m.Encode()
	return 0
}

// describe converts the arguments to a TensorMap. It returns an error for arguments that the emulator does not
// support.
func (a *tensorMapArguments) describe() (*ptx.TensorMap, error) {
	m := &ptx.TensorMap{Address: a.address, Element: elementBytes[a.kind], Rank: int(a.rank)}
	switch {
	case m.Element == 0:
		return nil, fmt.Errorf("data type %d; the emulator has bf16 and fp32", a.kind)
	case a.rank < 1 || a.rank > 5:
		return nil, fmt.Errorf("a tensor of %d dimensions, of which there can be 1 to 5", a.rank)
	case a.sizes == nil || a.box == nil || a.every == nil || a.strides == nil && a.rank > 1:
		return nil, fmt.Errorf("a null pointer")
	case a.interleave != 0 || a.fill != 0:
		return nil, fmt.Errorf("interleave %d and fill %d, which the emulator has not", a.interleave, a.fill)
	case int(a.swizzle) >= len(swizzleBytes):
		return nil, fmt.Errorf("swizzle %d, which the emulator has not", a.swizzle)
	case a.promotion > 3:
		return nil, fmt.Errorf("L2 promotion %d", a.promotion)
	}
	m.Swizzle = swizzleBytes[a.swizzle]
	copy(m.Size[:], unsafe.Slice(a.sizes, m.Rank))
	copy(m.Box[:], unsafe.Slice(a.box, m.Rank))
	m.Stride[0] = uint64(m.Element)
	if m.Rank > 1 {
		copy(m.Stride[1:], unsafe.Slice(a.strides, m.Rank-1))
	}
	for i, n := range unsafe.Slice(a.every, m.Rank) {
		if n != 1 {
			return nil, fmt.Errorf("every element %d of dimension %d is wanted, and the emulator has every one", n, i)
		}
	}
	return m, nil
}
