package emu

import "syscall"

// threadID is the system's number of the calling OS thread.
func threadID() int { return syscall.Gettid() }
