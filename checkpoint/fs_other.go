//go:build !linux

package checkpoint

import (
	"errors"
	"math"
	"os"
)

// Free returns the largest number: free space is unknown here, so a full disk shows only when it is written to.
func (osFS) Free(string) (int64, error) { return math.MaxInt64, nil }

// Exchange fails: this system has no atomic exchange.
func (osFS) Exchange(a, b string) error { return errors.ErrUnsupported }

// syncData syncs a file.
func syncData(f *os.File) error { return f.Sync() }

// Allocate does nothing, since this system has no portable call that reserves space.
func (f *osFile) Allocate(int64) error { return nil }

// Flush only records the range, since this system has no portable call that writes a range to disk.
func (f *osFile) Flush(off, n int64) { f.off, f.n = off, n }
