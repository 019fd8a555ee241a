package cudart

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"mt/internal/testkit"
)

// TestLoadedFrom: loadedFrom returns the mapped file for a requested library name, even if the name
// is a link to a file with another version.
func TestLoadedFrom(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, file, want string }{
		{"libmt-one.so.1", "libmt-one.so.1", "libmt-one.so.1"},
		{"libmt-two.so.1", "libmt-two.so.1.4.7", "libmt-two.so.1.4.7"},
		{"libmt-three.so.1", "libmt-three.so.550.54", "libmt-three.so.550.54"},
		{"libmt-four.so.1", "libmt-fourth.so.1", ""},
	} {
		path := filepath.Join(dir, c.file)
		f := testkit.Must(os.Create(path))(t)
		mem := testkit.Must(syscall.Mmap(int(f.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_PRIVATE))(t)
		want := c.name
		if c.want != "" {
			want = filepath.Join(dir, c.want)
		}
		if got := loadedFrom(c.name); got != want {
			t.Errorf("%s was loaded from %s, want %s", c.name, got, want)
		}
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
