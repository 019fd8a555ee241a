package emu

import "syscall"

// threadID is the OS thread that calls.
func threadID() int { return syscall.Gettid() }
