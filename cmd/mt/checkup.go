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

// Sizes in bytes that are measured in passing: a copy larger than most caches, and a file that a
// slow disk takes a second for. Tests measure less.
var (
	passingCopy int64 = 128 << 20
	passingFile int64 = 64 << 20
)

// judge looks at every part of the machine, and at the disk that dir is on.
func judge(cuda machine.CUDA, dir string) doctor.Parts {
	if a, err := host.NewArena(accounts.GradientSlabs, optim.PageBytes, nil); err == nil { // tries whether memory can be placed
		_ = a.Close()
	}
	return doctor.CheckUp(doctor.Sources{Root: os.DirFS("/"), CUDA: cuda, Room: host.AvailableMemory(), Arch: runtime.GOARCH, Nodes: host.MachineNodes(),
		Levels: optim.Levels(), Level: optim.Level(), CPUs: runtime.NumCPU(), MemoryRate: copyRate, Disk: func() doctor.DiskTrial { return tryDisk(dir) }})
}

// copyRate is how many bytes a second all cores read and write when they copy.
func copyRate() (float64, error) {
	pool := parallel.New(0)
	defer pool.Close()
	t, err := measure.Memcpy(pool, passingCopy, measure.Options{Runs: 3})
	if err != nil {
		return 0, err
	}
	return 2 * float64(passingCopy) / t.Least, nil
}

// tryDisk writes a file to dir and removes it.
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

// movesStates says what would move states that are on disks to and from dir, "" where none can be there.
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
