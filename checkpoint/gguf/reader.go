package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// The start of a file, and the alignment in bytes. The data section begins at a multiple of readAlignment, and so
// does each tensor within the section.
const (
	readMagic     = "GGUF"
	readVersion   = 3
	readAlignment = 32
)

// The numbers that stand for the types of keys' values in a file.
const (
	readUint32  = 4
	readInt32   = 5
	readFloat32 = 6
	readBool    = 7
	readString  = 8
	readArray   = 9
	readUint64  = 10
)

// Limits on the numbers in a file, far above real files. They bound the memory that a damaged file takes.
const (
	maxCount  = 1 << 24 // keys, tensors, elements of an array
	maxString = 1 << 26
	maxDims   = 4
)

// File is an open GGUF file.
type File struct {
	KVs     []KV // in the file's order
	Tensors []Tensor

	// Data is the offset of the data section in bytes, from the file's start.
	Data int64

	r io.ReaderAt
}

// Open reads the keys and the list of tensors of a file of the given size.
func Open(r io.ReaderAt, size int64) (*File, error) {
	p := &parser{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), left: size}
	f := &File{r: r}
	if m := p.bytes(4); p.err == nil && string(m) != readMagic {
		return nil, errors.New("not a GGUF file")
	}
	if v := p.u32(); p.err == nil && v != readVersion {
		return nil, fmt.Errorf("version %d of GGUF is not read, only %d", v, readVersion)
	}
	tensors, kvs := p.count(), p.count()
	for range kvs {
		if p.err != nil {
			break
		}
		key := p.string()
		f.KVs = append(f.KVs, KV{Key: key, Value: p.value(p.u32())})
	}
	for range tensors {
		if p.err != nil {
			break
		}
		f.Tensors = append(f.Tensors, p.tensor())
	}
	if p.err != nil {
		return nil, p.err
	}
	f.Data = (size - p.left + readAlignment - 1) / readAlignment * readAlignment
	return f, f.check(size)
}

// check returns an error if a tensor lies beyond the file, overlaps another or is not aligned.
func (f *File) check(size int64) error {
	byOff := slices.Clone(f.Tensors)
	slices.SortFunc(byOff, func(a, b Tensor) int { return int(max(-1, min(1, a.Off-b.Off))) })
	var at int64
	for _, t := range byOff {
		switch {
		case t.Off < at || t.Off%readAlignment != 0:
			return fmt.Errorf("tensor %s: its data begin at %d, not at a multiple of %d from %d on", t.Name, t.Off, readAlignment, at)
		case t.Off > size-f.Data || t.Bytes() > size-f.Data-t.Off:
			return fmt.Errorf("tensor %s: its data end after the file", t.Name)
		}
		at = t.Off + t.Bytes()
	}
	return nil
}

// Value returns the value of a key, or nil.
func (f *File) Value(key string) any {
	for _, kv := range f.KVs {
		if kv.Key == key {
			return kv.Value
		}
	}
	return nil
}

// Tensor returns the tensor with this name, and whether there is one.
func (f *File) Tensor(name string) (Tensor, bool) {
	i := slices.IndexFunc(f.Tensors, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Read reads a whole tensor as fp32.
func (f *File) Read(t Tensor) ([]float32, error) {
	raw := make([]byte, t.Bytes())
	if n, err := f.r.ReadAt(raw, f.Data+t.Off); n < len(raw) {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	out := make([]float32, t.Elems())
	Decode(out, t.Type, raw)
	return out, nil
}

// parser reads the fields of a header from r. left is the number of bytes that the file still has. After its first
// error, err, it reads nothing more.
type parser struct {
	r    io.Reader
	left int64
	err  error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *parser) bytes(n int64) []byte {
	if p.err != nil {
		return nil
	}
	if n > p.left {
		p.fail("truncated: %d bytes are left where %d should be", p.left, n)
		return nil
	}
	out := make([]byte, n)
	if _, err := io.ReadFull(p.r, out); err != nil {
		p.err = err
		return nil
	}
	p.left -= n
	return out
}

func (p *parser) u32() uint32 {
	if b := p.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if b := p.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (p *parser) count() int {
	n := p.u64()
	if n > maxCount {
		p.fail("%d entries; at most %d are read", n, maxCount)
		return 0
	}
	return int(n)
}

func (p *parser) string() string {
	n := p.u64()
	if n > maxString {
		p.fail("a string of %d bytes; at most %d are read", n, maxString)
		return ""
	}
	return string(p.bytes(int64(n)))
}

// value reads a value whose type has the given number in GGUF.
func (p *parser) value(kind uint32) any {
	switch kind {
	case readUint32:
		return p.u32()
	case readInt32:
		return int32(p.u32())
	case readFloat32:
		return math.Float32frombits(p.u32())
	case readBool:
		b := p.bytes(1)
		return b != nil && b[0] != 0
	case readString:
		return p.string()
	case readUint64:
		return p.u64()
	case readArray:
		return p.array()
	}
	p.fail("a value of type %d is not read", kind)
	return nil
}

func (p *parser) array() any {
	kind, n := p.u32(), p.count()
	switch kind {
	case readString:
		return repeat(p, n, p.string)
	case readInt32:
		return repeat(p, n, func() int32 { return int32(p.u32()) })
	case readFloat32:
		return repeat(p, n, func() float32 { return math.Float32frombits(p.u32()) })
	}
	p.fail("an array of type %d is not read", kind)
	return nil
}

func repeat[T any](p *parser, n int, next func() T) []T {
	out := []T{}
	for i := 0; i < n && p.err == nil; i++ {
		out = append(out, next())
	}
	return out
}

func (p *parser) tensor() Tensor {
	t := Tensor{Name: p.string()}
	dims := p.u32()
	if dims > maxDims {
		p.fail("tensor %s: %d dimensions", t.Name, dims)
		return t
	}
	n := int64(1)
	for range dims {
		d := p.u64()
		if d > math.MaxInt64/8 || (d > 0 && n > math.MaxInt64/8/int64(d)) {
			p.fail("tensor %s: a dimension of %d", t.Name, d)
			return t
		}
		n *= int64(d)
		t.Shape = append([]int64{int64(d)}, t.Shape...)
	}
	t.Type = Type(p.u32())
	off := p.u64()
	switch {
	case p.err != nil:
	case !known(t.Type):
		p.fail("tensor %s: %s is not read", t.Name, t.Type)
	case off > math.MaxInt64/2:
		p.fail("tensor %s: its data begin at %d", t.Name, off)
	case t.Type == Q8_0 && (dims == 0 || t.Shape[len(t.Shape)-1]%blockLen != 0):
		p.fail("tensor %s: rows of Q8_0 that are no multiple of %d", t.Name, blockLen)
	}
	t.Off = int64(off)
	return t
}
