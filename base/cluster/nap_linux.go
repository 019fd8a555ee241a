package cluster

import "golang.org/x/sys/unix"

// nap suspends the thread for some microseconds. If the Go runtime is idle, time.Sleep would suspend it for at least a
// millisecond, in which a network could carry a megabyte.
func nap(microseconds int64) {
	rest := unix.NsecToTimespec(microseconds * 1000)
	_ = unix.Nanosleep(&rest, nil) // a signal may end the pause early, which is harmless
}
