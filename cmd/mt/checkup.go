package main

import (
	"os"
	"runtime"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/checkpoint"
	"mt/host"
	"mt/host/extents"
	"mt/host/optim"
	"mt/internal/doctor"
	"mt/internal/doctor/measure"
	"mt/internal/run/machine"
)

// Sizes in bytes of the quick measurements: a copy larger than most caches, and a file that takes a slow disk a
// second. Tests use smaller sizes.
var (
	passingCopy int64 = 128 << 20
	passingFile int64 = 64 << 20
)

// judge examines every part of the machine that matters to a run, with the disk of the folder dir. cuda describes the
// GPU and its libraries.
func judge(cuda machine.CUDA, dir string) doctor.Parts {
	if a, err := host.NewArena(accounts.GradientSlabs, optim.PageBytes, nil); err == nil { // probes NUMA placement
		_ = a.Close()
	}
	return doctor.CheckUp(doctor.Sources{Root: os.DirFS("/"), CUDA: cuda, Room: host.AvailableMemory(), Arch: runtime.GOARCH, Nodes: host.MachineNodes(),
		Levels: optim.Levels(), Level: optim.Level(), CPUs: runtime.NumCPU(), MemoryRate: copyRate, Disk: func() doctor.DiskTrial { return tryDisk(dir) }})
}

// copyRate returns the rate of a copy in host memory on all cores, in bytes read and written per second.
func copyRate() (float64, error) {
	pool := parallel.New(0)
	defer pool.Close()
	t, err := measure.Memcpy(pool, passingCopy, measure.Options{Runs: 3})
	if err != nil {
		return 0, err
	}
	return 2 * float64(passingCopy) / t.Least, nil
}

// tryDisk writes a temporary file into dir and measures the write rate and the free space.
func tryDisk(dir string) (d doctor.DiskTrial) {
	d.Dir = dir
	if d.Free, d.Err = checkpoint.OS().Free(dir); d.Err != nil {
		return d
	}
	bytes := max(1, min(passingFile, d.Free/2))
	t, _, err := measure.Disk(dir, bytes, measure.Options{Runs: 1})
	if err != nil {
		d.Err = err
		return d
	}
	d.Rate = float64(bytes) / t.Least
	d.By = movesStates(dir)
	return d
}

// movesStates returns the name of the I/O engine (such as io_uring) with which a run would read and write optimizer
// state in dir. "" means that dir cannot hold such state.
func movesStates(dir string) string {
	e, err := extents.Open(extents.Options{Dirs: []string{dir}, Name: "mt-doctor.bin", Run: "mt doctor", Names: []string{"nothing"}, Bytes: []int64{extents.BlockBytes}})
	if err != nil {
		return ""
	}
	by := e.Engine()
	if e.Close() != nil {
		return ""
	}
	return by
}
