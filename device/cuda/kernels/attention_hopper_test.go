package kernels_test

import (
	"fmt"
	"testing"

	"mt/device"
	"mt/internal/long"
)

// TestAttentionHopper runs the cases of the other kernels that those for sm_90a take.
func TestAttentionHopper(t *testing.T) {
	if long.Race {
		t.Skip("slow under the race detector, for which TestOp runs the same interpreter")
	}
	dev := newRig()
	dev.sm90a = true
	for _, c := range attentionCases {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			dev.slower = nil
			newAttentionRun(t, dev, device.BF16, c).check()
			t.Log(dev.slower)
		})
	}
}
