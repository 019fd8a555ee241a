package cluster

import "golang.org/x/sys/unix"

// nap lets the thread rest for the microseconds. time.Sleep rests for a thousand at
// least where nothing else is to be done, in which a network could have carried a
// megabyte.
func nap(microseconds int64) {
	rest := unix.NsecToTimespec(microseconds * 1000)
	_ = unix.Nanosleep(&rest, nil) // a signal may end it early, which is as well
}
