//go:build !linux

package emu

// Nothing returns 0: no such C function is known on this platform.
func Nothing() uintptr { return 0 }
