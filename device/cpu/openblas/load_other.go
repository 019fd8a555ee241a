//go:build !(darwin || freebsd || linux || netbsd)

package openblas

import "errors"

// load fails, because on this system mt does not open shared libraries.
func load(string) (*Library, error) {
	return nil, errors.New("libraries cannot be opened on this system")
}
