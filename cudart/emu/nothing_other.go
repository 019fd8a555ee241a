//go:build !linux

package emu

// Nothing is 0, as no such function of C is known here.
func Nothing() uintptr { return 0 }
