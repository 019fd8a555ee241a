package layers

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has the garbage collector be lazy: little of what tests allocate stays alive.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
