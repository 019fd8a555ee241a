package gguf

import "fmt"

// Type is how the elements of a tensor are stored, with ggml's numbers.
type Type uint32

// The types that are written.
const (
	F32  Type = 0
	F16  Type = 1
	Q8_0 Type = 8 // blocks of BlockLen elements: a scale in half precision, then signed bytes
	BF16 Type = 30
)

// BlockLen is the number of elements in a block of Q8_0. A row of such a tensor has a
// multiple of it.
const BlockLen = 32

// blockBytes is the size of a Q8_0 block.
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

// Bytes is the size of n elements; for Q8_0 n is a multiple of BlockLen.
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

// Tensor is an entry of a file's list of tensors.
type Tensor struct {
	Name string
	Type Type
	// Shape has the outermost dimension first, as safetensors has it; the file
	// has it the other way round.
	Shape []int64
	// Off is where its data begin, counted from the start of the data; the
	// writer sets it.
	Off int64
}

// Elems is the number of elements.
func (t Tensor) Elems() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of the data.
func (t Tensor) Bytes() int64 { return t.Type.Bytes(t.Elems()) }

// KV is a key and its value: a bool, uint32, int32, uint64, float32, string, or a
// slice of strings, int32 or float32.
type KV struct {
	Key   string
	Value any
}

// The numbers of value types in the file.
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
	// alignment of every tensor's data, in bytes. It is GGUF's default, so no key names
	// it.
	alignment = 32
)

func padded(n int64) int64 { return (n + alignment - 1) / alignment * alignment }
