//go:build !linux

package emu

// Nothing is 0: there is no such function here.
func Nothing() uintptr { return 0 }
