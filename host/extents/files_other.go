//go:build !linux

package extents

import (
	"errors"
	"os"
)

// direct fails, because only Linux has O_DIRECT.
func direct(*os.File, bool) error { return errors.ErrUnsupported }

// reserve does nothing. The file system takes space when the file is written.
func reserve(*os.File, int64) error { return nil }
