package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/dustin/go-humanize"
)

// Open opens a regular file, or a link to one, for reading. The error wraps fs.ErrNotExist
// where there is no such file. Where path is something else, the error says what it is.
func Open(path string) (*os.File, error) {
	// Looking before opening is for devices that do something when they are opened; looking
	// after it is for what may have taken the file's place in between.
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := Regular(path, st); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
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

// Same tells whether two names lead to one file or directory that is there.
func Same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// NotAFile is the error of a path that is no regular file.
type NotAFile struct {
	Path, What string // "a directory", "a pipe"
}

func (e *NotAFile) Error() string { return fmt.Sprintf("%s: it is %s, not a file", e.Path, e.What) }

// Regular is the error of what is no regular file.
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

// Read is the content of a regular file of at most max bytes.
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

// ReadAll is what r, whose name is path, holds: at most max bytes.
func ReadAll(path string, r io.Reader, max int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(text)) > max {
		return nil, fmt.Errorf("%s: longer than %s, which is the most that is expected", path, humanize.IBytes(uint64(max)))
	}
	return text, err
}

// Begin is the first bytes of a regular file, n of them or all.
func Begin(path string, n int) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(n)))
}
