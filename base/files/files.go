package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/dustin/go-humanize"
)

// Open opens a regular file, or a link to a regular file, for reading. If path does not exist, the error wraps
// fs.ErrNotExist. If path is a directory, pipe, socket or device, the error is a *NotAFile.
func Open(path string) (*os.File, error) {
	// The first check avoids opening devices that act when they are opened. The second check detects a file that was
	// replaced between the first check and the open.
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := Regular(path, st); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: opening a pipe does not wait for a writer
	if err != nil {
		return nil, err
	}
	if st, err = f.Stat(); err == nil {
		err = Regular(path, st)
	}
	if err != nil {
		_ = f.Close() // only opened
		return nil, err
	}
	return f, nil
}

// Same reports whether both paths exist and name the same file or directory.
func Same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// NotAFile is the error for a path that is not a regular file.
type NotAFile struct {
	Path, What string // "a directory", "a pipe"
}

func (e *NotAFile) Error() string { return fmt.Sprintf("%s: it is %s, not a file", e.Path, e.What) }

// Regular returns a *NotAFile error if st is not a regular file, else nil.
func Regular(path string, st fs.FileInfo) error {
	what := "something else"
	switch m := st.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		what = "a directory"
	case m&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case m&fs.ModeSocket != 0:
		what = "a socket"
	case m&fs.ModeDevice != 0:
		what = "a device"
	}
	return &NotAFile{path, what}
}

// Read returns the content of the regular file at path. If the file is longer than max bytes, it returns an error.
func Read(path string, max int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > max {
		return nil, fmt.Errorf("%s: %s long; at most %s is expected", path, humanize.IBytes(uint64(st.Size())), humanize.IBytes(uint64(max)))
	}
	return ReadAll(path, f, max)
}

// ReadAll returns the content of r. If it is longer than max bytes, ReadAll returns an error. path only names the
// source in errors.
func ReadAll(path string, r io.Reader, max int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(text)) > max {
		return nil, fmt.Errorf("%s: longer than %s, which is the most that is expected", path, humanize.IBytes(uint64(max)))
	}
	return text, err
}

// Begin returns the first n bytes of the regular file at path, or the whole file if it is shorter.
func Begin(path string, n int) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(n)))
}
