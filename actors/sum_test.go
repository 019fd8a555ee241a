package actors

import "testing"

// TestLossesAreSummedInFloat64: losses of very different size are summed exactly. A sum in fp32
// would lose every loss after the first, 2^24, because fp32 values of this size are 2 apart.
func TestLossesAreSummedInFloat64(t *testing.T) {
	losses := []float32{1 << 24, 0.5, 0.25, 1, -(1 << 24)}
	b := make([]byte, 4*len(losses))
	putFloats(b, losses)
	if got := sumF32(b); got != 1.75 {
		t.Errorf("the sum of %v is %v, want 1.75", losses, got)
	}
}
