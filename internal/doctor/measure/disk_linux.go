package measure

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget drops what the page cache has of f, all of which is on disk. It is advice, so that
// errors do not count.
func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
