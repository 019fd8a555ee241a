//go:build !linux

package cluster

import "time"

// nap suspends the thread for about the given microseconds.
func nap(microseconds int64) { time.Sleep(time.Duration(microseconds) * time.Microsecond) }
