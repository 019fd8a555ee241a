package parallel

import "testing"

// TestWithoutAPool: Run of a nil pool calls the function for all indices on the caller's goroutine,
// in order.
func TestWithoutAPool(t *testing.T) {
	var pool *Pool
	next := 0
	pool.Run(5, func(i int) {
		if i != next {
			t.Errorf("index %d, want %d", i, next)
		}
		next++
	})
	if next != 5 {
		t.Errorf("%d calls, want 5", next)
	}
}
