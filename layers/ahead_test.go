package layers

import (
	"slices"
	"testing"
)

// TestAheadRows: in each document the next row of the last token is the first, and previous undoes next.
func TestAheadRows(t *testing.T) {
	next, previous := AheadRows([]int32{0, 3, 4, 6})
	if want := []int32{1, 2, 0, 3, 5, 4}; !slices.Equal(next, want) {
		t.Errorf("next %v, want %v", next, want)
	}
	if want := []int32{2, 0, 1, 3, 5, 4}; !slices.Equal(previous, want) {
		t.Errorf("previous %v, want %v", previous, want)
	}
}
