//go:build unix

package host

import "golang.org/x/sys/unix"

func blank(bytes int64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(bytes), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
}

// FreeBlank releases memory that Blank has returned.
func FreeBlank(b []byte) { _ = unix.Munmap(b[:cap(b)]) }
