package emu

import "github.com/ebitengine/purego"

// Nothing returns the address of a C function that takes no arguments, has no relevant effect and returns 0. Tests use
// it to measure the cost of a call. 0: there is no such function. A function of this package would not do, because a
// callback allocates.
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
