//go:build !linux

package numa

import "errors"

// none is a System that knows nothing of nodes.
type none struct{}

// ThisSystem is the System that this program runs on.
func ThisSystem() System { return none{} }

var errUnknown = errors.New("not on this system")

func (none) Affinity() ([]int, error) { return nil, errUnknown }

func (none) CPU() (int, error) { return 0, errUnknown }

func (none) Prefer([]byte, int) error { return errUnknown }
