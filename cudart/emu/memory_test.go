package emu

import "testing"

// TestSpareMemory: memory that is reused for a new allocation has the content of fresh memory
// again.
func TestSpareMemory(t *testing.T) {
	const n = spareFrom + 5
	first := junk(n)
	for _, at := range []int{0, 1, len(fresh) - 1, len(fresh), n / 2, n - 1} {
		first[at] = 7
	}
	spare(first)
	again := junk(n)
	if &again[0] != &first[0] {
		t.Error("memory that was freed is not given out again")
	}
	for i, b := range again {
		if b != 0xff {
			t.Fatalf("byte %d is %#x", i, b)
		}
	}
	spare(again)
	for range mostSpares {
		spare(make([]byte, spareFrom))
	}
	if len(spares.of) != mostSpares {
		t.Errorf("%d allocations are kept, want %d", len(spares.of), mostSpares)
	}
	if last := junk(n); &last[0] == &first[0] {
		t.Error("the oldest of too many is kept")
	}
	spares.of = nil
}
