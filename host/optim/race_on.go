//go:build race

package optim

import (
	"runtime"
	"unsafe"
)

// announceRead tells the race detector of a read by assembly, which it cannot see.
func announceRead[E any](first *E, n int) {
	var e E
	if n > 0 {
		runtime.RaceReadRange(unsafe.Pointer(first), n*int(unsafe.Sizeof(e)))
	}
}

// announceWrite tells the race detector of a write by assembly, which it cannot
// see.
func announceWrite[E any](first *E, n int) {
	var e E
	if n > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(first), n*int(unsafe.Sizeof(e)))
	}
}
