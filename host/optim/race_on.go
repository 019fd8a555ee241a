//go:build race

package optim

import (
	"runtime"
	"unsafe"
)

// announceRead tells the race detector that assembly reads n elements from first on. The race detector does not see
// what assembly does.
func announceRead[E any](first *E, n int) {
	var e E
	if n > 0 {
		runtime.RaceReadRange(unsafe.Pointer(first), n*int(unsafe.Sizeof(e)))
	}
}

// announceWrite tells the race detector that assembly writes n elements from first on. The race detector does not see
// what assembly does.
func announceWrite[E any](first *E, n int) {
	var e E
	if n > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(first), n*int(unsafe.Sizeof(e)))
	}
}
