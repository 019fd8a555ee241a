//go:build !linux

package measure

import "os"

// forget does nothing on this system, which cannot drop cached pages: reads come from memory.
func forget(*os.File) {}
