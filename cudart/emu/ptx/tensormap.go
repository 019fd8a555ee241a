package ptx

import (
	"encoding/binary"
	"fmt"
)

// TensorMapBytes is the size of a tensor map. TensorMapAlign is the alignment of its address.
const (
	TensorMapBytes = 128
	TensorMapAlign = 64
)

// TensorMap describes a tensor in global memory and the box that one copy moves, as cuTensorMapEncodeTiled does.
// Dimension 0 is contiguous.
type TensorMap struct {
	Address uint64
	Element int       // bytes of an element
	Rank    int       // dimensions, 1 to 5
	Size    [5]uint64 // elements
	Stride  [5]uint64 // bytes between neighbouring elements of a dimension; Stride[0] is Element
	Box     [5]uint32 // elements
	Swizzle int       // row size of the swizzle pattern in bytes: 32, 64 or 128; 16: no swizzle
}

// Check returns an error for a tensor map that the driver would reject. Source: CUDA Driver API, "Tensor Map Object
// Management".
func (m *TensorMap) Check() error {
	if m.Rank < 1 || m.Rank > 5 {
		return fmt.Errorf("a tensor of %d dimensions, of which there can be 1 to 5", m.Rank)
	}
	if m.Address%16 != 0 {
		return fmt.Errorf("address %#x is no multiple of 16", m.Address)
	}
	for i := range m.Rank {
		switch {
		case m.Size[i] == 0 || m.Size[i] > 1<<32:
			return fmt.Errorf("dimension %d has %d elements, of which there can be 1 to 2^32", i, m.Size[i])
		case m.Box[i] == 0 || m.Box[i] > 256:
			return fmt.Errorf("a box of %d elements in dimension %d, of which there can be 1 to 256", m.Box[i], i)
		case i > 0 && (m.Stride[i]%16 != 0 || m.Stride[i] >= 1<<40):
			return fmt.Errorf("a stride of %d bytes in dimension %d, which is no multiple of 16 below 2^40", m.Stride[i], i)
		}
	}
	switch row := int(m.Box[0]) * m.Element; {
	case row%16 != 0:
		return fmt.Errorf("a box with rows of %d bytes, no multiple of 16", row)
	case m.Swizzle > 16 && row > m.Swizzle:
		return fmt.Errorf("a box with rows of %d bytes, more than the %d of the swizzle", row, m.Swizzle)
	}
	return nil
}

// tensorMapMark starts the bytes of an emulated tensor map. The format of NVIDIA's tensor maps is not documented.
const tensorMapMark = 0x70616d726f736e74

// Encode returns the 128 bytes that are passed to a kernel.
func (m *TensorMap) Encode() [TensorMapBytes]byte {
	var out [TensorMapBytes]byte
	le := binary.LittleEndian
	le.PutUint64(out[:], tensorMapMark)
	le.PutUint64(out[8:], m.Address)
	out[16], out[17], out[18] = byte(m.Element), byte(m.Rank), byte(m.Swizzle)
	for i := range 5 {
		le.PutUint64(out[24+8*i:], m.Size[i])
		le.PutUint32(out[96+4*i:], m.Box[i])
		if i > 0 {
			le.PutUint64(out[56+8*i:], m.Stride[i])
		}
	}
	return out
}

// decodeTensorMap is the inverse of Encode.
func decodeTensorMap(b []byte) (*TensorMap, error) {
	le := binary.LittleEndian
	if len(b) < TensorMapBytes || le.Uint64(b) != tensorMapMark {
		return nil, fmt.Errorf("there is no tensor map at this address")
	}
	m := &TensorMap{Address: le.Uint64(b[8:]), Element: int(b[16]), Rank: int(b[17]), Swizzle: int(b[18])}
	for i := range 5 {
		m.Size[i], m.Box[i], m.Stride[i] = le.Uint64(b[24+8*i:]), le.Uint32(b[96+4*i:]), uint64(m.Element)
		if i > 0 {
			m.Stride[i] = le.Uint64(b[56+8*i:])
		}
	}
	return m, m.Check()
}

// bytes returns the size of the box in bytes.
func (m *TensorMap) bytes() uint32 {
	n := uint32(m.Element)
	for _, b := range m.Box[:m.Rank] {
		n *= b
	}
	return n
}

// piece is 16 bytes of a bulk copy between shared and global memory. Only bytes [from, to) of the 16 lie inside the
// tensor. A copy to shared memory fills the others with zeros; a copy to global memory does not write them.
type piece struct {
	shared   uint32
	global   uint64
	from, to uint8
}

// pieces lists the pieces of the box whose first element has the coordinates at. In shared memory the box begins at
// offset shared. Parts of the box may lie outside the tensor.
func (m *TensorMap) pieces(shared uint32, at [5]int32) []piece {
	row := m.Box[0] * uint32(m.Element)
	rows := m.bytes() / row
	out := make([]piece, 0, m.bytes()/16)
	for r := range rows {
		address, inside := m.Address, true
		for i, left := 1, r; i < m.Rank; i++ {
			x := int64(at[i]) + int64(left%m.Box[i])
			left /= m.Box[i]
			inside = inside && x >= 0 && x < int64(m.Size[i])
			address += uint64(x) * m.Stride[i]
		}
		first, size := int64(at[0])*int64(m.Element), int64(m.Size[0])*int64(m.Element)
		for c := uint32(0); c < row; c += 16 {
			x := first + int64(c)
			p := piece{shared: m.swizzled(shared + r*row + c), global: address + uint64(x)}
			if inside {
				p.from, p.to = uint8(min(max(-x, 0), 16)), uint8(min(max(size-x, 0), 16))
			}
			out = append(out, p)
		}
	}
	return out
}

// swizzled returns the offset in shared memory at which the piece for offset at is stored. The swizzle permutes
// pieces by their address in shared memory, in the same way in which wgmma reads them.
func (m *TensorMap) swizzled(at uint32) uint32 {
	t := operandTile{width: uint32(m.Swizzle)}
	return t.swizzled(at)
}
