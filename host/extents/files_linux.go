package extents

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// direct sets or clears O_DIRECT (open(2)) on the open file f. It returns EINVAL if the file system does not support
// O_DIRECT.
func direct(f *os.File, on bool) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags &^= unix.O_DIRECT; on {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	return err
}

// reserve reserves disk space for a size of bytes from the start of f, with fallocate(2). If the file system does not
// support fallocate, it does nothing.
func reserve(f *os.File, bytes int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, bytes)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return nil
		default:
			return err
		}
	}
}
