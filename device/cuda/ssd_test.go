package cuda

import (
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device/conformance"
	"mt/internal/testkit"
)

// TestSSD: all conformance cases of SSD, the state space scan of Mamba-2, pass forward and
// backward. A short test runs one case in three.
func TestSSD(t *testing.T) {
	if testkit.Race {
		t.Skip("computes for minutes; TestOps runs the other operations on the same goroutines")
	}
	some := conformance.OneIn(testkit.Every(t, 3))
	d, _ := newDevice(t, emu.Options{Mode: emu.Lazy, Threads: 1}, Options{})
	conformance.SomeOperations(t, d, func(name string) bool {
		return (strings.HasPrefix(name, "SSD/") || strings.HasPrefix(name, "SSDBackward/")) && some(name)
	})
}
