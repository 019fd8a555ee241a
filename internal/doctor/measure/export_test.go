package measure

import (
	"os"
	"time"
)

func Times(o Options, run func(repeats int) (time.Duration, error)) (Seconds, error) {
	return o.times(run)
}

func Filled(o Options) Options { return o.filled() }

func DiskOnce(f *os.File, block []byte, bytes int64) (write, read time.Duration, err error) {
	return diskOnce(f, block, bytes)
}

func Permuted(n int) func(i int) float64 { return permuted(n) }
