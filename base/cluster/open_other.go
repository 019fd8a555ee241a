//go:build !(darwin || freebsd || linux || netbsd)

package cluster

import "errors"

// open fails, because loading libraries is not supported on this system.
func open(string) (*library, error) {
	return nil, errors.New("libraries cannot be opened on this system")
}

func shut(*library) {}
