//go:build linux && !race

package cpu

import (
	"errors"

	"golang.org/x/sys/unix"
)

// mapMemory returns zeroed memory outside the Go heap, in huge pages if the system has them.
func mapMemory(bytes int64) ([]byte, error) {
	data, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	// Madvise is only advice. On a system without huge pages it returns EINVAL, and the memory
	// works but is slower.
	if err := unix.Madvise(data, unix.MADV_HUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(err, unix.Munmap(data))
	}
	return data, nil
}

func unmapMemory(data []byte) {
	if err := unix.Munmap(data); err != nil {
		panic("cpu: munmap of a mapping of this device: " + err.Error())
	}
}
