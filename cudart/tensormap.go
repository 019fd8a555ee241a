package cudart

import "unsafe"

// TensorMap is a CUtensorMap. It tells the TMA unit of GPUs with compute capability 9.0 and newer
// where a tensor lies in device memory, and which box of the tensor a copy moves. Kernels take it
// as a parameter, aligned to 64 bytes.
type TensorMap [128]byte

// tensorMapAlign is the alignment in bytes of the result of cuTensorMapEncodeTiled: 64 in the CUDA 12 documentation,
// 128 in the CUDA 13 header.
const tensorMapAlign = 128

// Arguments of cuTensorMapEncodeTiled. Source:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
const (
	tensorMapBFloat16   = 9 // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
	tensorMapSwizzle128 = 3 // CU_TENSOR_MAP_SWIZZLE_128B
	tensorMapFetch256   = 3 // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
)

// TensorRows describes bf16 rows in device memory, and the box that one copy moves.
type TensorRows struct {
	Addr          DevicePtr // a multiple of 16
	Columns, Rows int       // above 0
	StrideBytes   int64     // between rows, a multiple of 16
	// BoxColumns is at most 64, which fills the 128 bytes of a swizzled row. BoxRows is at most 256.
	BoxColumns, BoxRows int
}

// HasTensorMaps reports whether libcuda can create tensor maps.
func (c *CUDA) HasTensorMaps() bool { return c.driver.tensorMapEncodeTiled.addr != 0 }

// TensorMap creates the tensor map of r. In shared memory each row of a box takes 128 bytes. The 16-byte chunk i of
// row r is stored at chunk i XOR r%8. Elements outside the tensor become zeros. TensorMap touches no device. Call it
// only if HasTensorMaps returns true.
// cuTensorMapEncodeTiled: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TENSOR__MEMORY.html
func (c *CUDA) TensorMap(ctx Context, r TensorRows) (out TensorMap, err error) {
	m := newFrame()
	defer m.release()
	at := (m.room(len(out)+tensorMapAlign) + tensorMapAlign - 1) &^ (tensorMapAlign - 1)
	m.words[0], m.words[1] = uint64(r.Columns), uint64(r.Rows) // cuuint64_t
	m.words[2] = uint64(r.StrideBytes)
	m.words[3] = uint64(r.BoxColumns) | uint64(r.BoxRows)<<32 // cuuint32_t
	m.words[4] = 1 | 1<<32                                    // element strides: every element of a row, every row
	err = c.driver.in(ctx, &c.driver.tensorMapEncodeTiled, at, tensorMapBFloat16, 2, uintptr(r.Addr), m.at(0), m.at(2), m.at(3), m.at(4),
		0, tensorMapSwizzle128, tensorMapFetch256, 0)
	copy(out[:], m.bytes[at-uintptr(unsafe.Pointer(&m.bytes[0])):])
	return out, err
}
