package checkpoint

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
)

func TestPrune(t *testing.T) {
	c := small(t)
	layers := newLayers(c, false)
	const good = math.MaxInt
	for _, tc := range []struct {
		steps   []int       // in the order they are written
		skipped map[int]int // how many steps in a row were skipped, up to a checkpoint's
		marked  int         // the step of a checkpoint that is marked; 0: none
		keep    int
		finite  int
		best    int // of the lowest eval_loss
		want    string
	}{
		{steps: []int{1, 2, 3}, keep: 0, finite: good, want: "[1 2 3]"},
		{steps: []int{1, 2, 3}, keep: 5, finite: good, want: "[1 2 3]"},
		{steps: []int{9, 10, 11}, keep: 2, finite: good, want: "[10 11]"},
		{steps: []int{1, 2, 3}, keep: 1, finite: good, want: "[3]"},
		{steps: []int{3, 2, 1, 4}, keep: 2, finite: good, want: "[3 4]"}, // the step counts, not the clock
		{steps: []int{1, 30, 2}, keep: 1, finite: good, want: "[2 30]"},  // resumed from 1: both the highest and the last stay
		// The best checkpoint stays in addition to the keep newest. If it is the newest itself, it
		// counts toward keep.
		{steps: []int{1, 2, 3, 4}, keep: 1, finite: good, best: 2, want: "[2 4]"},
		{steps: []int{1, 2, 3, 4}, keep: 2, finite: good, best: 1, want: "[1 3 4]"},
		{steps: []int{1, 2, 3, 4}, keep: 2, finite: good, best: 4, want: "[3 4]"},
		{steps: []int{1, 2, 3, 4}, keep: 1, finite: 4, best: 3, want: "[3 4]"},
		// Step 3 was finite, but no later step has shown yet that the weights of checkpoint 3 are
		// good.
		{steps: []int{1, 2, 3}, keep: 1, finite: 3, want: "[2 3]"},
		{steps: []int{1, 2, 3}, keep: 2, finite: 3, want: "[2 3]"},
		{steps: []int{1, 2, 3}, keep: 1, finite: 4, want: "[3]"},
		// Steps 4 and 5 were skipped: the update of step 3 may have broken the weights.
		{steps: []int{1, 2, 3, 4, 5}, skipped: map[int]int{4: 1, 5: 2}, keep: 1, finite: 3, want: "[2 5]"},
		{steps: []int{1, 2, 3, 4, 5}, skipped: map[int]int{4: 1, 5: 2}, keep: 2, finite: 3, want: "[2 3 5]"},
		{steps: []int{1, 2, 3, 4, 5}, skipped: map[int]int{4: 1, 5: 2}, keep: 0, finite: 3, want: "[1 2 3 4 5]"},
		// Steps 4 and 5 were skipped, but step 6 was finite again.
		{steps: []int{2, 3, 5, 6}, skipped: map[int]int{5: 2}, keep: 2, finite: 7, want: "[5 6]"},
		// A run that failed has marked a checkpoint, and another run has begun again from an
		// earlier one.
		{steps: []int{1, 2, 5, 3}, marked: 5, keep: 1, finite: 3, want: "[2 3 5]"},
		{steps: []int{1, 2, 3, 4, 5}, marked: 3, keep: 2, finite: 6, want: "[4 5]"},
		{steps: []int{1, 2, 3, 4}, marked: 2, keep: 3, finite: 3, want: "[1 3 4]"},
	} {
		out := fastDir(t)
		stay := []string{"checkpoint-7.tmp-123.txt", "checkpoint-9.tmp-mine", "model.tmp-5", "model.tmp-mine", "model.tmp-remove", "notes"}
		for _, name := range stay {
			if name == "model.tmp-5" { // a file: leftovers of saves are directories
				write(t, filepath.Join(out, name), nil)
				continue
			}
			write(t, filepath.Join(out, name, "x"), nil)
		}
		for _, name := range []string{"checkpoint-7.tmp-123", "checkpoint-7.tmp-123-1", "checkpoint-8.tmp-5-old", "checkpoint-8.tmp-remove", "model.tmp-123"} {
			write(t, filepath.Join(out, name, "x"), nil)
		}
		for i, step := range tc.steps {
			s := testState
			s.Step, s.NonFinite = step, tc.skipped[step]
			testkit.NoError(t, saveStep(out, layers, c, s))
			at := time.Unix(1e9+int64(i), 0)
			testkit.NoError(t, os.Chtimes(filepath.Join(out, fmt.Sprintf("checkpoint-%d", step), manifestName), at, at))
		}
		if tc.marked > 0 {
			if _, _, err := MarkNonFinite(osFS{}, out, tc.marked, tc.marked, tc.marked+3); err != nil {
				t.Fatal(err)
			}
		}
		testkit.NoError(t, Prune(osFS{}, out, tc.keep, tc.finite, tc.steps[len(tc.steps)-1], tc.best))
		var steps []int
		var others []string
		for _, name := range names(t, out) {
			var step int
			if checkpointDir.MatchString(name) {
				fmt.Sscanf(name, "checkpoint-%d", &step)
				steps = append(steps, step)
				continue
			}
			others = append(others, name)
		}
		if slices.Sort(steps); fmt.Sprint(steps) != tc.want {
			t.Errorf("%+v: %v", tc, steps)
		}
		if !slices.Equal(others, stay) {
			t.Errorf("of what is not ours %v are left, want %v", others, stay)
		}
	}
}

// TestMarkNonFinite: a marked checkpoint is skipped with a reason and is still valid. Writing it again removes the
// mark.
func TestMarkNonFinite(t *testing.T) {
	c := small(t)
	layers := newLayers(c, false)
	out := fastDir(t)
	save := func(step int) {
		s := testState
		s.Step = step
		testkit.NoError(t, saveStep(out, layers, c, s))
	}
	for _, step := range []int{2, 4, 6, 8, 30} {
		save(step)
	}
	dir := func(step int) string { return filepath.Join(out, fmt.Sprintf("checkpoint-%d", step)) }
	good, marked, err := MarkNonFinite(osFS{}, out, 6, 8, 11)
	if err != nil || good != dir(4) || fmt.Sprint(marked) != fmt.Sprint([]string{dir(8), dir(6)}) {
		t.Fatalf("good %s, marked %v, %v", good, marked, err)
	}
	if err := os.RemoveAll(dir(30)); err != nil { // from a later step than the run reached, so not marked
		t.Fatal(err)
	}
	latest, _, skipped, err := Latest(out, nil)
	if err != nil || latest != dir(4) || len(skipped) != 2 || !skipped[0].NonFinite || skipped[0].Dir != dir(8) ||
		!strings.Contains(skipped[0].Why, "failed at step 11, and no step after 6 was finite") {
		t.Errorf("latest is %s after %+v, %v", latest, skipped, err)
	}
	if err := Verify(dir(8)); err != nil {
		t.Errorf("a marked checkpoint is not whole: %v", err)
	}
	if good, _, err = MarkNonFinite(osFS{}, out, 7, 7, 9); err != nil || good != dir(4) {
		t.Errorf("a marked checkpoint counts as good: %s, %v", good, err)
	}
	save(6)
	if latest, _, _, err = Latest(out, nil); err != nil || latest != dir(6) {
		t.Errorf("written again: latest is %s, %v", latest, err)
	}
}

// stuckFS fails to rename or to remove paths with a certain name.
type stuckFS struct {
	osFS
	rename, remove string
}

func (f stuckFS) Rename(from, to string) error {
	if filepath.Base(from) == f.rename {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: errDisk}
	}
	return f.osFS.Rename(from, to)
}

func (f stuckFS) RemoveAll(path string) error {
	if filepath.Base(path) == f.remove {
		return &os.PathError{Op: "unlinkat", Path: path, Err: errDisk}
	}
	return f.osFS.RemoveAll(path)
}

// TestPruneCannot: a checkpoint that cannot be removed is reported, and no newer checkpoint is
// removed in its place.
func TestPruneCannot(t *testing.T) {
	for _, tc := range []struct {
		disk       stuckFS
		says, left string
	}{
		{stuckFS{rename: "checkpoint-1"}, "rename %s/checkpoint-1: the disk is on fire", "[checkpoint-1 checkpoint-3 checkpoint-4]"},
		{stuckFS{remove: "checkpoint-1.tmp-remove"}, "remove %s/checkpoint-1.tmp-remove: the disk is on fire", "[checkpoint-1.tmp-remove checkpoint-3 checkpoint-4]"},
		{stuckFS{remove: "model.tmp-1"}, "remove %s/model.tmp-1: the disk is on fire", "[checkpoint-3 checkpoint-4 model.tmp-1]"},
	} {
		out := fastDir(t)
		for step := range 4 {
			write(t, filepath.Join(out, fmt.Sprintf("checkpoint-%d", step+1), "x"), nil)
		}
		if tc.disk.remove == "model.tmp-1" {
			write(t, filepath.Join(out, "model.tmp-1", "x"), nil)
		}
		for range 2 { // the second time there is nothing new to remove
			err := Prune(tc.disk, out, 2, math.MaxInt, 4, 0)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(tc.says, out)) {
				t.Errorf("%+v: %v", tc.disk, err)
			}
			if got := fmt.Sprint(names(t, out)); got != tc.left {
				t.Errorf("%+v: %s is left, want %s", tc.disk, got, tc.left)
			}
		}
	}
}

// TestRemovedAgain: if a removal was interrupted and the checkpoint was written again, the next
// removal also removes the older remains.
func TestRemovedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		remove func(out string) error
		left   string
	}{
		"Prune":  {func(out string) error { return Prune(osFS{}, out, 1, math.MaxInt, 2, 0) }, "[checkpoint-2 model.safetensors]"},
		"Remove": {Remove, "[model.safetensors]"},
	} {
		out := fastDir(t)
		for _, file := range []string{"checkpoint-1/x", "checkpoint-1.tmp-remove/x", "checkpoint-2/x", "model.safetensors"} {
			write(t, filepath.Join(out, file), nil)
		}
		if err := tc.remove(out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := fmt.Sprint(names(t, out)); got != tc.left {
			t.Errorf("%s: %s is left, want %s", name, got, tc.left)
		}
	}
}
