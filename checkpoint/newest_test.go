package checkpoint

import (
	"path/filepath"
	"testing"
)

// TestNewest: the newest is found by the step in its name. Directories that hold no
// state, and checkpoints whose weights may be broken, are passed over.
func TestNewest(t *testing.T) {
	c := small(t)
	layers := newLayers(c, false)
	out := fastDir(t)
	if dir, _, err := Newest(filepath.Join(out, "nothing")); dir != "" || err != nil {
		t.Errorf("no directory: %q, %v", dir, err)
	}
	if dir, _, err := Newest(out); dir != "" || err != nil {
		t.Errorf("no checkpoint: %q, %v", dir, err)
	}
	for _, step := range []int{9, 10, 100} {
		s := testState
		s.Step = step
		if err := saveStep(out, layers, c, s); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(out, "checkpoint-200", "x"), []byte("garbage"))
	write(t, filepath.Join(out, "checkpoint-300.tmp-7", stateName), []byte("{}"))
	dir, state, err := Newest(out)
	if err != nil || dir != filepath.Join(out, "checkpoint-100") || state.Step != 100 {
		t.Errorf("%q, step %d, %v", dir, state.Step, err)
	}
	if _, _, err := MarkNonFinite(OS(), out, 50, 100, 103); err != nil {
		t.Fatal(err)
	}
	if dir, state, err := Newest(out); err != nil || dir != filepath.Join(out, "checkpoint-10") || state.Step != 10 {
		t.Errorf("past a marked one: %q, step %d, %v", dir, state.Step, err)
	}
}
