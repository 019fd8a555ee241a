//go:build !linux

package emu

// threadID returns 0 for all threads, because this platform offers no portable thread id. A missing cuCtxSetCurrent
// may therefore go unnoticed.
func threadID() int { return 0 }
