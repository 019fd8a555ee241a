package measure

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget drops the page cache of f, which is clean. The call is only advice, so errors are ignored.
func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
