//go:build !linux

package extents

import "errors"

// newRing fails, because only Linux has io_uring.
func newRing(int) (mover, error) { return nil, errors.ErrUnsupported }
