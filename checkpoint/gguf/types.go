package gguf

import "fmt"

// Type is the element type of a tensor, with ggml's numbers.
type Type uint32

// The types that Encode supports.
const (
	F32  Type = 0
	F16  Type = 1
	Q8_0 Type = 8 // blocks of BlockLen elements: a scale in half precision, then signed bytes
	BF16 Type = 30
)

// BlockLen is the number of elements in a Q8_0 block. The rows of a Q8_0 tensor have a multiple of BlockLen
// elements.
const BlockLen = 32

// blockBytes is the size of a Q8_0 block in bytes.
const blockBytes = 2 + BlockLen

func (t Type) String() string {
	switch t {
	case F32:
		return "F32"
	case F16:
		return "F16"
	case Q8_0:
		return "Q8_0"
	case BF16:
		return "BF16"
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Bytes returns the size of n elements in bytes. For Q8_0, n must be a multiple of BlockLen.
func (t Type) Bytes(n int64) int64 {
	switch t {
	case F32:
		return 4 * n
	case Q8_0:
		return n / BlockLen * blockBytes
	default:
		return 2 * n
	}
}

// Tensor is an entry in a file's list of tensors.
type Tensor struct {
	Name string
	Type Type
	// Shape has the outermost dimension first, as in safetensors. The file stores the dimensions in reverse.
	Shape []int64
	// Off is the offset of the tensor's data in bytes, from the start of the data section. Header sets it.
	Off int64
}

// Elems returns the number of elements.
func (t Tensor) Elems() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes returns the size of the data in bytes.
func (t Tensor) Bytes() int64 { return t.Type.Bytes(t.Elems()) }

// KV is a key and its value. The value is a bool, uint32, int32, uint64, float32, string, or a slice of strings,
// int32 or float32.
type KV struct {
	Key   string
	Value any
}

// The numbers that stand for the types of keys' values in a file.
const (
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeBool    = 7
	typeString  = 8
	typeArray   = 9
	typeUint64  = 10
)

const (
	magic   = "GGUF"
	version = 3
	// alignment is the alignment of every tensor's data in bytes. It is GGUF's default, so no key
	// states it.
	alignment = 32
)

func padded(n int64) int64 { return (n + alignment - 1) / alignment * alignment }
