//go:build linux && !race

package host

import "golang.org/x/sys/unix"

// adviseHuge asks for pages of 2 MiB. A kernel without them refuses, and small
// pages do.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
