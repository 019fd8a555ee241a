package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Header returns the bytes of a file up to the first tensor's data, and sets Off in every tensor. The data follow
// in the order given, each padded with Pad. Header fails on a value of a type that KV does not allow, and on a
// duplicate key or tensor.
func Header(kvs []KV, tensors []Tensor) ([]byte, error) {
	out := append([]byte(magic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(out[len(magic):], version)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(tensors)))
	out = binary.LittleEndian.AppendUint64(out, uint64(len(kvs)))
	seen := map[string]bool{}
	for _, kv := range kvs {
		if seen[kv.Key] {
			return nil, fmt.Errorf("key %s: appears twice", kv.Key)
		}
		seen[kv.Key] = true
		var err error
		if out, err = appendValue(appendString(out, kv.Key), kv.Value); err != nil {
			return nil, fmt.Errorf("key %s: %w", kv.Key, err)
		}
	}
	clear(seen)
	var off int64
	for i := range tensors {
		t := &tensors[i]
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor %s: appears twice", t.Name)
		}
		seen[t.Name] = true
		t.Off = off
		off += padded(t.Bytes())
		out = appendTensor(out, *t)
	}
	return append(out, make([]byte, padded(int64(len(out)))-int64(len(out)))...), nil
}

// Pad writes the zeros that must follow a tensor's data of n bytes, up to the next multiple of the alignment.
func Pad(w io.Writer, n int64) error {
	_, err := w.Write(make([]byte, padded(n)-n))
	return err
}

// Size returns the length in bytes of a file with this header and these tensors.
func Size(header []byte, tensors []Tensor) int64 {
	n := int64(len(header))
	for _, t := range tensors {
		n += padded(t.Bytes())
	}
	return n
}

func appendTensor(out []byte, t Tensor) []byte {
	out = appendString(out, t.Name)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(t.Shape)))
	for i := len(t.Shape) - 1; i >= 0; i-- {
		out = binary.LittleEndian.AppendUint64(out, uint64(t.Shape[i]))
	}
	out = binary.LittleEndian.AppendUint32(out, uint32(t.Type))
	return binary.LittleEndian.AppendUint64(out, uint64(t.Off))
}

func appendString(out []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(out, uint64(len(s))), s...)
}

// appendValue appends the number of v's type and then v, as GGUF stores them.
func appendValue(out []byte, v any) ([]byte, error) {
	kind := func(k uint32) { out = binary.LittleEndian.AppendUint32(out, k) }
	array := func(k uint32, n int) {
		kind(typeArray)
		kind(k)
		out = binary.LittleEndian.AppendUint64(out, uint64(n))
	}
	switch x := v.(type) {
	case bool:
		kind(typeBool)
		if x {
			return append(out, 1), nil
		}
		return append(out, 0), nil
	case uint32:
		kind(typeUint32)
		return binary.LittleEndian.AppendUint32(out, x), nil
	case int32:
		kind(typeInt32)
		return binary.LittleEndian.AppendUint32(out, uint32(x)), nil
	case uint64:
		kind(typeUint64)
		return binary.LittleEndian.AppendUint64(out, x), nil
	case float32:
		kind(typeFloat32)
		return binary.LittleEndian.AppendUint32(out, math.Float32bits(x)), nil
	case string:
		kind(typeString)
		return appendString(out, x), nil
	case []string:
		array(typeString, len(x))
		for _, s := range x {
			out = appendString(out, s)
		}
		return out, nil
	case []int32:
		array(typeInt32, len(x))
		for _, n := range x {
			out = binary.LittleEndian.AppendUint32(out, uint32(n))
		}
		return out, nil
	case []float32:
		array(typeFloat32, len(x))
		for _, f := range x {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %T cannot be written", v)
}
