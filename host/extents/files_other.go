//go:build !linux

package extents

import (
	"errors"
	"os"
)

// direct fails: the flag is Linux's.
func direct(*os.File, bool) error { return errors.ErrUnsupported }

// reserve does nothing: room is taken as the file is written.
func reserve(*os.File, int64) error { return nil }
