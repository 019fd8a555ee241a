package checkup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"syscall"

	"mt/internal/human"
)

// DiskTrial is what came of writing to a folder.
type DiskTrial struct {
	Dir  string
	Free int64   // bytes; math.MaxInt64 where the disk does not say
	Rate float64 // bytes written a second, until they were on the disk
	By   string  // what would move states there (state_dir); "" where that was not tried
	Err  error
}

// What a disk is worth a word below: a checkpoint of a 7B model has 90 GB.
const (
	slowDisk = 200e6   // bytes a second: such a checkpoint takes seven minutes
	lowDisk  = 8 << 30 // bytes that are free
)

// disk tells how fast checkpoints could be written, and whether there is room.
func disk(s Sources) []Part {
	const name = "disk"
	if s.Disk == nil {
		return nil
	}
	d := s.Disk()
	elsewhere := []string{"look at another disk, and give runs an output_dir there:", "$ mt doctor --dir FOLDER"}
	if d.Err != nil {
		if errors.Is(d.Err, fs.ErrNotExist) {
			return one(name, Broken, fmt.Sprintf("%s: %v", d.Dir, d.Err), "$ mkdir -p "+d.Dir)
		}
		if errors.Is(d.Err, syscall.ENOSPC) || errors.Is(d.Err, syscall.EDQUOT) {
			return one(name, Broken, fmt.Sprintf("%s: %v", d.Dir, d.Err), append([]string{"what takes most room there:", "$ du -xh " + d.Dir + " | sort -h | tail"}, elsewhere...)...)
		}
		if errors.Is(d.Err, fs.ErrPermission) || errors.Is(d.Err, syscall.EROFS) {
			return one(name, Slow, fmt.Sprintf("%s: not tried: %v", d.Dir, d.Err), elsewhere...)
		}
		return one(name, Broken, fmt.Sprintf("%s: %v", d.Dir, d.Err), elsewhere...)
	}
	found := fmt.Sprintf("%s: %.3g GB/s written", d.Dir, d.Rate/1e9)
	if d.Free < math.MaxInt64 {
		found += ", " + human.Bytes(d.Free) + " free"
	}
	if d.By != "" {
		found += ", states by " + d.By
	}
	if d.Rate < slowDisk || d.Free < lowDisk {
		return one(name, Slow, found, elsewhere...)
	}
	return one(name, OK, found)
}
