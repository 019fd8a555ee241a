//go:build !(darwin || freebsd || linux || netbsd)

package openblas

import "errors"

// load fails: libraries are not opened on this system.
func load(string) (*Library, error) {
	return nil, errors.New("libraries cannot be opened on this system")
}
