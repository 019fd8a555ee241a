//go:build linux && !race

package host

import "golang.org/x/sys/unix"

// adviseHuge asks the kernel for pages of 2 MiB. If the kernel refuses, pages stay small, which is slower but not an
// error.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
