//go:build race

package extents

import (
	"runtime"
	"unsafe"
)

// raceMoved tells the race detector that the kernel has read b (write, to a file) or written to b. The race detector
// does not see the transfers of an io_uring.
func raceMoved(write bool, b []byte) {
	switch {
	case len(b) == 0:
	case write: // to the file
		runtime.RaceReadRange(unsafe.Pointer(&b[0]), len(b))
	default:
		runtime.RaceWriteRange(unsafe.Pointer(&b[0]), len(b))
	}
}
