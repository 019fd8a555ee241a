package host

import "unsafe"

// LoBytes returns the memory of Lo as bytes; nil if the layer has no lower halves in memory.
func (l *LayerState) LoBytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(l.Lo))), 2*len(l.Lo))
}
