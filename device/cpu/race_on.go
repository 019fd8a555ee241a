//go:build race

package cpu

import "runtime"

// raceEnabled says that this is a race build (go build -race).
const raceEnabled = true

// raceRead tells the race detector that this goroutine reads n bytes at addr.
func raceRead(addr uintptr, n int) { runtime.RaceReadRange(pointer(addr), n) }

// raceWrite tells the race detector that this goroutine writes n bytes at addr.
func raceWrite(addr uintptr, n int) { runtime.RaceWriteRange(pointer(addr), n) }
