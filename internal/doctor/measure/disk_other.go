//go:build !linux

package measure

import "os"

// forget does nothing here: what was written is read from memory again.
func forget(*os.File) {}
