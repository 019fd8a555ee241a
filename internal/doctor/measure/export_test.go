package measure

import (
	"os"
	"time"
)

// Times is Options.times.
func Times(o Options, run func(repeats int) (time.Duration, error)) (Seconds, error) {
	return o.times(run)
}

// Filled is Options.filled.
func Filled(o Options) Options { return o.filled() }

// DiskOnce is diskOnce.
func DiskOnce(f *os.File, block []byte, bytes int64) (write, read time.Duration, err error) {
	return diskOnce(f, block, bytes)
}

// Permuted is permuted.
func Permuted(n int) func(i int) float64 { return permuted(n) }
