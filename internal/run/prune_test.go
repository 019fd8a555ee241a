package run

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// stuckFS is a disk that cannot rename or remove files and folders whose name matches the pattern
// match.
type stuckFS struct {
	lazyFS
	match string
}

func (f stuckFS) Rename(from, to string) error {
	if ok, _ := filepath.Match(f.match, filepath.Base(from)); ok && strings.HasSuffix(to, "remove") {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EACCES}
	}
	return f.lazyFS.Rename(from, to)
}

func (f stuckFS) RemoveAll(path string) error {
	if ok, _ := filepath.Match(f.match, filepath.Base(path)); ok {
		return &os.PathError{Op: "unlinkat", Path: path, Err: syscall.EACCES}
	}
	return f.lazyFS.RemoveAll(path)
}

// TestPruneFails: a run continues if an old checkpoint cannot be removed, and says so once. It does
// not remove a newer checkpoint instead.
func TestPruneFails(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 2\nsave_total_limit: 2\n")
	want.mustTrain(t)
	for match, says := range map[string]string{
		"checkpoint-2":            "note: prune checkpoints: rename %s/checkpoint-2: permission denied; the run goes on, and what could not be removed takes room",
		"checkpoint-2.tmp-remove": "note: prune checkpoints: remove %s/checkpoint-2.tmp-remove: permission denied; ",
		"checkpoint-9.tmp-7":      "note: prune checkpoints: remove %s/checkpoint-9.tmp-7: permission denied; ", // before the first step
	} {
		got := want.in(t)
		write(t, filepath.Join(got.out, "checkpoint-9.tmp-7", "x"), "half")
		out, err := got.train(t, t.Context(), settings.Hooks{FS: stuckFS{lazyFS{checkpoint.OS()}, match}})
		if err != nil {
			t.Fatalf("%s: %v\n%s", match, err, out)
		}
		if n := strings.Count(out, strings.ReplaceAll(says, "%s", got.out)); n != 1 {
			t.Errorf("%s: said %d times:\n%s", match, n, out)
		}
		sameRun(t, got, want)
		for _, step := range []int{6, 8} {
			if err := checkpoint.Verify(filepath.Join(got.out, settings.CheckpointName(step))); err != nil {
				t.Error(err)
			}
		}
	}
}
