//go:build !linux

package extents

import "errors"

// newRing fails: io_uring is Linux's.
func newRing(int) (mover, error) { return nil, errors.ErrUnsupported }
