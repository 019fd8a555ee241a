package op

import (
	"math"
	"testing"
)

// TestLargestPlace: places and steps are words of a counter, so there is a largest one.
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
