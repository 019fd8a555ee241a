package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mt/checkpoint"
	"mt/internal/testkit"
)

// TestTempDir: a self test removes the leftovers of killed ones, but not directories in use.
func TestTempDir(t *testing.T) {
	temp := filepath.Join(t.TempDir(), "a[b") // not a valid glob pattern
	t.Setenv("TMPDIR", temp)
	killed, others := filepath.Join(temp, tempName+"1"), filepath.Join(temp, "mine")
	for _, dir := range []string{killed, others} {
		testkit.NoError(t, os.MkdirAll(dir, 0o755))
		testkit.NoError(t, writeRows(filepath.Join(dir, "rows.jsonl")))
	}
	dirs := []string{others}
	for range 2 {
		dir, remove, err := tempDir(checkpoint.Lock)
		testkit.NoError(t, err)
		defer remove()
		testkit.NoError(t, writeRows(filepath.Join(dir, "rows.jsonl")))
		dirs = append(dirs, dir)
	}
	entries := testkit.Must(os.ReadDir(temp))(t)
	var got []string
	for _, e := range entries {
		got = append(got, filepath.Join(temp, e.Name()))
	}
	if slices.Sort(dirs); !slices.Equal(got, dirs) {
		t.Errorf("%v is there, want %v", got, dirs)
	}
}

// TestTempDirWithoutLocks: on a system without locks, no other directory is removed.
func TestTempDirWithoutLocks(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var dirs []string
	for range 2 {
		dir, remove, err := tempDir(func(string) (func(), error) { return func() {}, nil })
		testkit.NoError(t, err)
		defer remove()
		testkit.NoError(t, writeRows(filepath.Join(dir, "rows.jsonl")))
		dirs = append(dirs, dir)
	}
	if _, err := os.Stat(dirs[0]); err != nil {
		t.Error(err)
	}
}
