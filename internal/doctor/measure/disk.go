package measure

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// diskRun is the size in bytes of one write or read.
const diskRun = 4 << 20

// Disk measures how fast a temporary file of bytes bytes in dir is written and read. It writes the file sequentially,
// including fsync, and reads it back. On Linux the read comes from the disk, since the page cache is dropped first.
// o.Runs and o.Most limit the number of runs and their total time.
func Disk(dir string, bytes int64, o Options) (write, read Seconds, err error) {
	if bytes < 1 {
		return write, read, fmt.Errorf("measure: disk: a file of %d bytes: want at least 1", bytes)
	}
	f, err := os.CreateTemp(dir, "mt-measure-*")
	if err != nil {
		return write, read, fmt.Errorf("measure: disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, diskRun)
	state := uint32(1)
	for i := range block { // incompressible, because a disk may compress
		state = state*1664525 + 1013904223
		block[i] = byte(state >> 24)
	}
	o = o.filled()
	var writes, reads []float64
	for begin := time.Now(); len(writes) < o.Runs && (len(writes) == 0 || time.Since(begin) < o.Most); {
		w, r, err := diskOnce(f, block, bytes)
		if err != nil {
			return write, read, fmt.Errorf("measure: disk: %w", err)
		}
		writes, reads = append(writes, w.Seconds()), append(reads, r.Seconds())
	}
	return Sum(writes), Sum(reads), nil
}

func diskOnce(f *os.File, block []byte, bytes int64) (write, read time.Duration, err error) {
	start := time.Now()
	for at := int64(0); at < bytes; at += diskRun {
		if _, err := f.WriteAt(block[:min(diskRun, bytes-at)], at); err != nil {
			return 0, 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, 0, err
	}
	write = time.Since(start)
	forget(f)
	start = time.Now()
	for at := int64(0); at < bytes; at += diskRun {
		if _, err := f.ReadAt(block[:min(diskRun, bytes-at)], at); err != nil && err != io.EOF {
			return 0, 0, err
		}
	}
	return max(1, write), max(1, time.Since(start)), nil
}
