//go:build unix && !race

package host

import (
	"golang.org/x/sys/unix"
)

// reserve maps memory that no other process sees. The system supplies a page when it is first touched.
func reserve(bytes int64) (raw, aligned []byte, err error) {
	raw, err = unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, err
	}
	adviseHuge(raw)
	return raw, raw, nil
}

// place makes the system take the pages of b from the memory of the k-th NUMA node.
func place(n *Nodes, b []byte, k int) { n.Place(b, k) }

func release(raw []byte) error { return unix.Munmap(raw) }
