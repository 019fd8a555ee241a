//go:build !(darwin || freebsd || linux || netbsd)

package cudart

import "errors"

// load returns an error: libraries cannot be opened on this system.
func load(string) (uintptr, error) {
	return 0, errors.New("libraries cannot be opened on this system")
}

func symbol(uintptr, string) uintptr { return 0 }

func loadedFrom(name string) string { return name }
