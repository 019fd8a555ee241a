//go:build !linux

package host

import "errors"

// noNodes is the NodeSystem of systems that give no information on nodes.
type noNodes struct{}

// ThisNodeSystem returns the NodeSystem of the operating system that mt runs on.
func ThisNodeSystem() NodeSystem { return noNodes{} }

var errNoNodes = errors.New("not on this system")

func (noNodes) Affinity() ([]int, error) { return nil, errNoNodes }

func (noNodes) CPU() (int, error) { return 0, errNoNodes }

func (noNodes) Prefer([]byte, int) error { return errNoNodes }
