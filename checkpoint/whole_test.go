package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// meetingFS calls meet before its first rename.
type meetingFS struct {
	FS
	meet func()
}

func (f *meetingFS) Rename(from, to string) error {
	if meet := f.meet; meet != nil {
		f.meet = nil
		meet()
	}
	return f.FS.Rename(from, to)
}

// TestWriteShared: two that write one file at the same time both succeed, the last to rename wins, and nothing else stays.
func TestWriteShared(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	fs := &meetingFS{FS: OS(), meet: func() {
		if err := WriteShared(OS(), path, []byte("another's, which is longer")); err != nil {
			t.Error(err)
		}
	}}
	if err := WriteShared(fs, path, []byte("its own")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "its own" {
		t.Errorf("%q, %v", b, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
