//go:build !(darwin || freebsd || linux || netbsd)

package openblas

import "errors"

// load fails: this system does not open libraries.
func load(string) (*Library, error) {
	return nil, errors.New("libraries cannot be opened on this system")
}
