//go:build linux && !race

package host

import "golang.org/x/sys/unix"

// adviseHuge asks for pages of 2 MiB. Where the kernel refuses, pages stay small,
// which is slower and no failure.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
