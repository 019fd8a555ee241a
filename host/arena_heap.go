//go:build race || !unix

package host

import (
	"unsafe"
)

// reserve takes memory from the Go heap. Every system has the heap, and the race detector sees accesses to it. Of raw,
// the part aligned begins at a page boundary and has the given size.
func reserve(bytes int64) (raw, aligned []byte, err error) {
	raw = make([]byte, bytes+pageBytes)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & (pageBytes - 1)
	return raw, raw[skip : int64(skip)+bytes : int64(skip)+bytes], nil
}

// release leaves the memory to the garbage collector.
func release([]byte) error { return nil }

// place does nothing, because the Go runtime decides where heap memory lies.
func place(*Nodes, []byte, int) {}
