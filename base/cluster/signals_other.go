//go:build !linux

package cluster

// keepSignals does nothing: no library that catches signals was seen on this system.
func keepSignals() (restore func()) { return func() {} }

// endAtAbort does nothing either.
func endAtAbort() {}
