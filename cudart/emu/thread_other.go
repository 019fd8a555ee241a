//go:build !linux

package emu

// threadID is the same for all threads here, because the system's number of a
// thread is not at hand. A missing cuCtxSetCurrent may then go unnoticed.
func threadID() int { return 0 }
