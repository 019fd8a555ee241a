//go:build !linux

package cluster

// keepSignals does nothing. On this system no library is known to catch signals.
func keepSignals() (restore func()) { return func() {} }

// endAtAbort does nothing. On this system no library is known to print a message and abort.
func endAtAbort() {}
