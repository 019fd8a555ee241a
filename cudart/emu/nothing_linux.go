package emu

import "github.com/ebitengine/purego"

// Nothing is the address of a function of C that takes nothing, has no effect that
// matters and returns 0. Tests of what calls cost use it; it is 0 where there is no
// such function. A function of this package would not do, because a callback
// allocates.
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
