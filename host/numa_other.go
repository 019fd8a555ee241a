//go:build !linux

package host

import "errors"

// noNodes is a NodeSystem that knows nothing of nodes.
type noNodes struct{}

// ThisNodeSystem is the NodeSystem that this program runs on.
func ThisNodeSystem() NodeSystem { return noNodes{} }

var errNoNodes = errors.New("not on this system")

func (noNodes) Affinity() ([]int, error) { return nil, errNoNodes }

func (noNodes) CPU() (int, error) { return 0, errNoNodes }

func (noNodes) Prefer([]byte, int) error { return errNoNodes }
