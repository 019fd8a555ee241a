package files

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mt/internal/testkit"
)

// TestRead: Read returns a file up to the given size. A longer file, and a path or link to anything
// that is not a regular file, is an error; opening a pipe does not block.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	big := testkit.Must(os.Create(at("big")))(t)
	testkit.NoError(t, errors.Join(os.WriteFile(at("file"), []byte("12345"), 0o600), os.Symlink("file", at("link")), os.Symlink("nothing", at("dangling")),
		os.Symlink("loop", at("loop")), os.Mkdir(at("dir"), 0o700), big.Truncate(1<<40), big.Close(), syscall.Mkfifo(at("pipe"), 0o600),
		os.Symlink("pipe", at("to-pipe")), os.Symlink("/dev/zero", at("endless"))))
	l := testkit.Must(net.Listen("unix", at("s")))(t)
	defer l.Close()
	for _, tc := range []struct {
		name      string
		max       int64
		want, err string
	}{
		{"file", 5, "12345", ""},
		{"link", 6, "12345", ""},
		{"file", 4, "", "/file: 5 B long; at most 4 B is expected"},
		{"big", 1 << 20, "", "/big: 1.0 TiB long; at most 1.0 MiB is expected"},
		{"dir", 9, "", "/dir: it is a directory, not a file"},
		{"pipe", 9, "", "/pipe: it is a pipe, not a file"},
		{"to-pipe", 9, "", "/to-pipe: it is a pipe, not a file"},
		{"endless", 9, "", "/endless: it is a device, not a file"},
		{"s", 9, "", "/s: it is a socket, not a file"},
		{"loop", 9, "", "too many levels of symbolic links"},
	} {
		got, err := Read(at(tc.name), tc.max)
		if string(got) != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v", tc.name, got, err)
		}
	}
	for _, name := range []string{"nothing", "dangling"} {
		if _, err := Read(at(name), 9); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := Begin(at("file"), 3); string(got) != "123" || err != nil {
		t.Errorf("it begins with %q, %v", got, err)
	}
	if got, err := Begin(at("file"), 30); string(got) != "12345" || err != nil {
		t.Errorf("it begins with %q, %v", got, err)
	}
}

// TestReadCloses: reading leaves no file open.
func TestReadCloses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	testkit.NoError(t, os.WriteFile(name, []byte("12345"), 0o600))
	for range 100 {
		testkit.Must(Read(name, 9))(t)
		testkit.Must(Begin(name, 3))(t)
	}
	open := testkit.Must(filepath.Glob("/proc/self/fd/*"))(t)
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && to == name {
			t.Errorf("%s still leads to %s", fd, to)
		}
	}
}

// endless is a reader that never ends, like a file that grows while it is read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestReadAllIsBounded(t *testing.T) {
	e := &endless{}
	if _, err := ReadAll("x", e, 1000); err == nil || !strings.Contains(err.Error(), "x: longer than 1000 B") || e.read > 1001 {
		t.Errorf("%v after %d bytes", err, e.read)
	}
}

// TestSame: Same is true for two paths of one file or directory, also through links. It is false if
// a path does not exist.
func TestSame(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	testkit.NoError(t, errors.Join(os.Mkdir(at("a"), 0o700), os.Mkdir(at("b"), 0o700), os.Symlink("a", at("link"))))
	for pair, want := range map[[2]string]bool{
		{at("a"), dir + "/b/../a"}: true, {at("link"), at("a")}: true, {at("a"), at("b")}: false,
		{at("a"), at("none")}: false, {at("none"), at("a")}: false, {at("none"), at("none")}: false, {"", ""}: false,
	} {
		if got := Same(pair[0], pair[1]); got != want {
			t.Errorf("%v: %v", pair, got)
		}
	}
}
