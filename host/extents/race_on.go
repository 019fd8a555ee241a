//go:build race

package extents

import (
	"runtime"
	"unsafe"
)

// raceMoved tells the race detector what the kernel read or wrote of b, which it cannot see.
func raceMoved(write bool, b []byte) {
	switch {
	case len(b) == 0:
	case write: // to the file
		runtime.RaceReadRange(unsafe.Pointer(&b[0]), len(b))
	default:
		runtime.RaceWriteRange(unsafe.Pointer(&b[0]), len(b))
	}
}
