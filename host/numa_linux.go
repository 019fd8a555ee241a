package host

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// LinuxNodes implements NodeSystem for Linux.
type LinuxNodes struct{}

// ThisNodeSystem returns the NodeSystem of the operating system that mt runs on.
func ThisNodeSystem() NodeSystem { return LinuxNodes{} }

// Affinity implements NodeSystem.
func (LinuxNodes) Affinity() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var out []int
	for c := range 8 * int(unsafe.Sizeof(set)) {
		if set.IsSet(c) {
			out = append(out, c)
		}
	}
	return out, nil
}

// CPU implements NodeSystem. Source: getcpu(2).
func (LinuxNodes) CPU() (int, error) {
	var cpu uint32
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); e != 0 {
		return 0, e
	}
	return int(cpu), nil
}

// preferNode is MPOL_PREFERRED of linux/mempolicy.h: take pages from this node, or from others if it is full.
const preferNode = 1

// mostNodes is the maximum number of nodes that Linux supports.
const mostNodes = 1024

// Prefer implements NodeSystem. Source: mbind(2).
func (LinuxNodes) Prefer(b []byte, node int) error {
	if node >= mostNodes {
		return unix.EINVAL
	}
	const bits = 64
	var mask [mostNodes / bits]uint64
	mask[node/bits] = 1 << (node % bits)
	// The kernel reads one bit less than the given number of bits, so one is added.
	_, _, e := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), preferNode,
		uintptr(unsafe.Pointer(&mask)), mostNodes+1, 0)
	if e != 0 {
		return e
	}
	return nil
}
