package cluster

import "golang.org/x/sys/unix"

// nap suspends the thread for some microseconds. time.Sleep would suspend it for at least a millisecond if the Go
// runtime is idle. A network could carry a megabyte in that time.
func nap(microseconds int64) {
	rest := unix.NsecToTimespec(microseconds * 1000)
	_ = unix.Nanosleep(&rest, nil) // a signal may end the pause early, which is harmless
}
