//go:build !linux

package cluster

import "time"

// nap lets the thread rest for about the microseconds.
func nap(microseconds int64) { time.Sleep(time.Duration(microseconds) * time.Microsecond) }
