package op

import (
	"math"
	"testing"
)

// TestLargestPlace: the token's position in the step and the step's number are 32-bit words of the
// noise generator's counter. Check accepts the largest position and refuses the next.
func TestLargestPlace(t *testing.T) {
	a := AddNoise{X: f32(6), Cu: i32(2), T: 2, C: 3, Seqs: 1, From: 1, First: math.MaxInt32 - 3, Step: math.MaxInt32}
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	later, beyond := a, a
	later.Step++
	beyond.First++
	for _, a := range []AddNoise{later, beyond} {
		if a.Check() == nil {
			t.Errorf("a place from %d on in step %d passes", a.First, a.Step)
		}
	}
}
