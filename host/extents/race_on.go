//go:build race

package extents

import (
	"runtime"
	"unsafe"
)

// raceMoved reports the kernel's accesses to b to the race detector, which does not see system calls of a ring.
func raceMoved(write bool, b []byte) {
	switch {
	case len(b) == 0:
	case write: // to the file
		runtime.RaceReadRange(unsafe.Pointer(&b[0]), len(b))
	default:
		runtime.RaceWriteRange(unsafe.Pointer(&b[0]), len(b))
	}
}
