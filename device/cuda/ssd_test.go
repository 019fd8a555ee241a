package cuda

import (
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device/conformance"
	"mt/internal/testkit"
)

// TestSSD runs all cases of the state space scan. A short test runs one in three.
func TestSSD(t *testing.T) {
	some := conformance.OneIn(testkit.Every(t, 3))
	d, _ := newDevice(t, emu.Options{Mode: emu.Lazy, Threads: 1}, Options{})
	conformance.SomeOperations(t, d, func(name string) bool {
		return (strings.HasPrefix(name, "SSD/") || strings.HasPrefix(name, "SSDBackward/")) && some(name)
	})
}
