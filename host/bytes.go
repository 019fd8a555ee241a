package host

import "unsafe"

// LoBytes is the memory of Lo, in bytes; nil where the layer has no lower halves here.
func (l *LayerState) LoBytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(l.Lo))), 2*len(l.Lo))
}
