package emu

import "github.com/ebitengine/purego"

// Nothing returns the address of a C function that takes no arguments, has no relevant effect and
// returns 0; 0: there is no such function. Tests call it to measure the cost of a call by itself. A
// Go callback would not do, because calling one allocates memory.
func Nothing() uintptr {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return 0
	}
	at, err := purego.Dlsym(libc, "sched_yield")
	if err != nil {
		return 0
	}
	return at
}
