package cudart

import "unsafe"

// TensorMap is a CUtensorMap: it tells the units that copy tiles to shared memory, on GPUs of compute
// capability 9.0 and newer, where a tensor lies and what they copy at a time. Kernels take it as a
// parameter, at a multiple of 64 bytes.
type TensorMap [128]byte

// tensorMapAlign is the alignment in bytes that cuTensorMapEncodeTiled wants of its result: 64 by the documents of CUDA 12,
// and 128 by the header of CUDA 13.
const tensorMapAlign = 128

// What cuTensorMapEncodeTiled is asked for. Source:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
const (
	tensorMapBFloat16   = 9 // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
	tensorMapSwizzle128 = 3 // CU_TENSOR_MAP_SWIZZLE_128B
	tensorMapFetch256   = 3 // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
)

// TensorRows are rows of bf16 in device memory and the box of them that is copied at a time.
type TensorRows struct {
	Addr          DevicePtr // a multiple of 16
	Columns, Rows int       // above 0
	StrideBytes   int64     // from row to row, a multiple of 16
	// BoxColumns are at most 64, which fill the 128 bytes that are swizzled; BoxRows at most 256.
	BoxColumns, BoxRows int
}

// HasTensorMaps says whether libcuda makes tensor maps.
func (c *CUDA) HasTensorMaps() bool { return c.driver.tensorMapEncodeTiled.addr != 0 }

// TensorMap describes rows. In shared memory a box's rows take 128 bytes each, chunk i (16 bytes) of row
// r at chunk i XOR r%8; what lies beyond the rows becomes zeros. It touches no device, and is to be called only where
// HasTensorMaps says yes.
// cuTensorMapEncodeTiled: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TENSOR__MEMORY.html
func (c *CUDA) TensorMap(ctx Context, r TensorRows) (out TensorMap, err error) {
	m := newFrame()
	defer m.release()
	at := (m.room(len(out)+tensorMapAlign) + tensorMapAlign - 1) &^ (tensorMapAlign - 1)
	m.words[0], m.words[1] = uint64(r.Columns), uint64(r.Rows) // cuuint64_t
	m.words[2] = uint64(r.StrideBytes)
	m.words[3] = uint64(r.BoxColumns) | uint64(r.BoxRows)<<32 // cuuint32_t
	m.words[4] = 1 | 1<<32                                    // every element of a row, every row
	err = c.driver.in(ctx, &c.driver.tensorMapEncodeTiled, at, tensorMapBFloat16, 2, uintptr(r.Addr), m.at(0), m.at(2), m.at(3), m.at(4),
		0, tensorMapSwizzle128, tensorMapFetch256, 0)
	copy(out[:], m.bytes[at-uintptr(unsafe.Pointer(&m.bytes[0])):])
	return out, err
}
