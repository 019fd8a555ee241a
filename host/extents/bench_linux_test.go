package extents

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkEngines compares the two ways to move chunks, a pool of threads with pread and pwrite,
// and io_uring. It writes and reads an extent of 256 MiB with each in turn and logs the rates:
// medians of 24 rounds and the quartiles.
//
//	go test ./host/extents -run - -bench Engines -benchtime 1x -v
//
// MT_BENCH_DIRS lists folders on the disks to measure, separated by commas. Default: temporary
// folders.
func BenchmarkEngines(b *testing.B) {
	for _, chunk := range []int64{4 << 20, 1 << 20} {
		for dirs := 1; dirs <= 2; dirs++ {
			b.Run(fmt.Sprintf("chunk=%dMiB/dirs=%d", chunk>>20, dirs), func(b *testing.B) {
				for b.Loop() {
					takeTurns(b, chunk, dirs)
				}
			})
		}
	}
}

// The engines, in the order of takeTurns, and the operations on each.
const (
	byPool = iota
	byRing
	engines
)

func takeTurns(b *testing.B, chunk int64, dirs int) {
	const size, warm, rounds = 256 << 20, 2, 24
	var files [engines]*Files
	for k := range files {
		o := Options{Name: fmt.Sprintf("bench-%d.bin", k), Run: "bench", Names: []string{"bench"}, Bytes: []int64{size}, Chunk: chunk, Dirs: benchDirs(b, dirs)}
		if k == byPool {
			o.ring = func(int) (mover, error) { return nil, errors.ErrUnsupported }
		}
		e, err := Open(o)
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		if k == byRing && e.ring == nil {
			b.Skip("moved by ", e.Engine())
		}
		files[k] = e
	}
	mem := memory(b, size, nil)
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // as arenas
	for i := range mem {
		mem[i] = byte(i * i >> 7)
	}
	var rates, times [2][engines][]float64
	for round := range warm + rounds {
		for turn := range engines {
			k := (round + turn) % engines
			for way, move := range []func(int, []byte) error{files[k].Write, files[k].Read} {
				began, cpu := time.Now(), processor(b)
				if err := move(0, mem); err != nil {
					b.Fatal(err)
				}
				if round >= warm {
					rates[way][k] = append(rates[way][k], size/1e9/time.Since(began).Seconds())
					times[way][k] = append(times[way][k], 1e3*(processor(b)-cpu).Seconds()/(size/1e9))
				}
			}
		}
	}
	for way, name := range []string{"write", "read"} {
		for _, of := range []struct {
			unit string
			x    [engines][]float64
		}{{"GB/s", rates[way]}, {"ms of CPU a GB", times[way]}} {
			ratios := make([]float64, rounds)
			for i := range ratios {
				ratios[i] = of.x[byRing][i] / of.x[byPool][i]
			}
			b.Logf("%-5s %-14s pool %s  ring %s  ring/pool %s", name, of.unit, spread(of.x[byPool]), spread(of.x[byRing]), spread(ratios))
		}
	}
}

// spread formats the median of x, and its first and third quartile.
func spread(x []float64) string {
	x = slices.Sorted(slices.Values(x))
	return fmt.Sprintf("%.3g (%.3g to %.3g)", x[len(x)/2], x[len(x)/4], x[len(x)*3/4])
}

// benchDirs returns n folders to measure.
func benchDirs(b *testing.B, n int) (dirs []string) {
	given := os.Getenv("MT_BENCH_DIRS")
	for i := range n {
		if all := strings.Split(given, ","); given != "" {
			dir, err := os.MkdirTemp(all[i%len(all)], "mt-bench-")
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = os.RemoveAll(dir) })
			dirs = append(dirs, dir)
		} else {
			dirs = append(dirs, b.TempDir())
		}
	}
	return dirs
}

// processor returns the processor time of this process, including the kernel's work on its threads.
func processor(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
