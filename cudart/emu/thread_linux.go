package emu

import "syscall"

// threadID returns the Linux thread id of the calling OS thread.
func threadID() int { return syscall.Gettid() }
