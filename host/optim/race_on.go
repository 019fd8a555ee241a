//go:build race

package optim

import (
	"runtime"
	"unsafe"
)

// announceRead reports a read by assembly to the race detector, which does not see assembly.
func announceRead[E any](first *E, n int) {
	var e E
	if n > 0 {
		runtime.RaceReadRange(unsafe.Pointer(first), n*int(unsafe.Sizeof(e)))
	}
}

// announceWrite reports a write by assembly to the race detector, which does not see assembly.
func announceWrite[E any](first *E, n int) {
	var e E
	if n > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(first), n*int(unsafe.Sizeof(e)))
	}
}
