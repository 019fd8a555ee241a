package measure

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget drops the pages of f from the system's cache, so that the next read comes from the disk. f must be written to
// the disk already. The call is only advice, so errors are ignored.
func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
