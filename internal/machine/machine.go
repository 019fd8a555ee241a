package machine

import (
	"errors"
	"fmt"

	"mt/cudart"
	"mt/device"
	"mt/device/cpu"
	"mt/device/cuda"
	"mt/internal/config"
)

// emulator starts an emulated GPU in builds with the tag emu, and is nil in all
// others. The function that it returns ends it; its error says what was wrong with the
// calls that were made.
var emulator func() (cudart.Symbols, func() error)

// Emulated says whether device: cuda is an emulator in this build.
func Emulated() bool { return emulator != nil }

// Search looks for CUDA's libraries on this machine. Tests put a search that
// finds none in its place.
var Search = func() cudart.Found { return cudart.Find(cudart.ThisMachine()) }

// GPU is what there is to run device: cuda on.
type GPU struct {
	Driver bool // there is an NVIDIA driver

	symbols cudart.Symbols // nil: err says why
	err     error
	found   cudart.Found // empty with an emulator
	cuda    *cudart.CUDA // one for all devices that are opened, so that they share pinned host memory
	end     func() error // of an emulator, else nil
}

// FindGPU looks for CUDA's libraries. Where symbols is not nil, or the build has an
// emulator, it takes those instead.
func FindGPU(symbols cudart.Symbols) GPU {
	if symbols != nil {
		return GPU{symbols: symbols}
	}
	if emulator != nil {
		symbols, end := emulator()
		return GPU{symbols: symbols, end: end}
	}
	g := GPU{found: Search()}
	g.Driver = g.found.Library(cudart.Driver).Path != ""
	if g.symbols, g.err = g.found.Open(); g.err != nil {
		g.err = fmt.Errorf("cuda: %w", g.err)
	}
	return g
}

// First is the ordinal of the first GPU, which a run on one GPU takes. There is no key for
// it: as in other programs that use CUDA, CUDA_VISIBLE_DEVICES says which GPU is the first,
// and a GPU that the variable hides is not touched.
const First = 0

// Open makes the device of that ordinal with a budget of limit bytes, 0 for all
// that is free. Its Close ends an emulator too. The error says what is missing.
func (g *GPU) Open(ordinal int, limit config.Bytes) (device.Device, error) {
	if g.err != nil {
		return nil, g.err
	}
	if g.cuda == nil {
		c, err := cudart.New(g.symbols)
		if err != nil {
			return nil, fmt.Errorf("cuda: %w", err)
		}
		g.cuda = c
	}
	dev, err := cuda.New(cuda.Options{CUDA: g.cuda, Ordinal: ordinal, MemoryLimit: int64(limit)})
	switch {
	case g.end == nil:
		return dev, err
	case err != nil:
		return nil, errors.Join(err, g.end())
	}
	return emulated{dev.(gpuDevice), g.end}, nil
}

// Options say what to open.
type Options struct {
	Device      string       // cuda or cpu
	Ordinal     int          // of cuda: which GPU, counted from First
	MemoryLimit config.Bytes // the device's budget; 0 is all that is free
	// Of the CPU.
	Threads int  // goroutines that compute; 0 is one for each core
	Unified bool // computes on host memory in place
}

// Open opens the GPU, or the emulator of this build, or the CPU. The device's
// Close gives it back.
func Open(o Options) (device.Device, error) {
	if o.Device == "cuda" {
		g := FindGPU(nil)
		return g.Open(o.Ordinal, o.MemoryLimit)
	}
	return cpu.New(cpu.Options{Threads: o.Threads, MemoryLimit: int64(o.MemoryLimit), Unified: o.Unified})
}

// gpuDevice is what package cuda opens.
type gpuDevice interface {
	device.Device
	Notes() []string
	Algorithms() []cuda.Algorithm
}

// emulated is a device whose Close ends its emulator too.
type emulated struct {
	gpuDevice
	end func() error
}

// Close gives the device back and tells what the emulator found wrong.
func (e emulated) Close() error { return errors.Join(e.gpuDevice.Close(), e.end()) }
