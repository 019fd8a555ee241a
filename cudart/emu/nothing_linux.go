package emu

import "github.com/ebitengine/purego"

// Nothing is the address of a function of C that takes nothing, does nothing that
// counts and returns 0, for tests of what calls cost; 0 where there is none. A
// function of this package would not do: a callback allocates.
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
