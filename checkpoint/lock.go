package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrLocked is the error of Lock where another process writes.
var ErrLocked = errors.New("another mt writes there now; wait for its end, or choose another name")

// Lock locks a directory for the caller to write into, or a file to write, until it
// calls unlock or the process ends. So two runs do not write one set of files, and no
// run takes what another is writing for a leftover. On a file system without locks
// nobody is kept out.
func Lock(path string) (unlock func(), err error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if errors.Is(unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return nil, errors.Join(ErrLocked, d.Close())
	}
	return func() { _ = d.Close() }, nil
}

// Sweep removes what killed saves have left in dir; a directory that is not there
// has none. It fails with ErrLocked while somebody writes there.
func Sweep(fs FS, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	unlock, err := Lock(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer unlock()
	for _, e := range entries {
		if IsLeftover(e) {
			_ = fs.RemoveAll(filepath.Join(dir, e.Name())) // what stays takes room, and how much is left is checked next
		}
	}
	return nil
}
