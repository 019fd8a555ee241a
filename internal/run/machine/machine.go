package machine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"mt/cudart"
	"mt/device"
	"mt/device/cpu"
	"mt/device/cuda"
	"mt/host"
	"mt/internal/run/config"
)

// emulator starts an emulated GPU in builds with the tag emu, and is nil in all
// others. The function that it returns ends it; its error says what was wrong with the
// calls that were made. The error says why it cannot start.
var emulator func() (cudart.Symbols, func() error, error)

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
	found   cudart.Found            // empty with an emulator
	cuda    *cudart.CUDA            // one for all devices that are opened, so that they share pinned host memory
	choices *cuda.Choices           // of all devices that are opened; nil: cuBLASLt's first proposals
	own     bool                    // matrix products by mt's own kernels
	pinning func(done, total int64) // see TellPinning
	hang    func(text string)       // see TellHang
	end     func() error            // of an emulator, else nil
	open    *atomic.Int32           // emulated devices: the last one that is closed ends the emulator
}

// FindGPU looks for CUDA's libraries. Where symbols is not nil, or the build has an
// emulator, it takes those instead.
func FindGPU(symbols cudart.Symbols) GPU {
	if symbols != nil {
		return GPU{symbols: symbols}
	}
	if emulator != nil {
		symbols, end, err := emulator()
		return GPU{symbols: symbols, end: end, err: err}
	}
	g := GPU{found: Search()}
	g.Driver = g.found.Library(cudart.Driver).Path != ""
	if g.symbols, g.err = g.found.Open(); g.err != nil {
		g.err = fmt.Errorf("cuda: %w", g.err)
	}
	return g
}

// wslDevice is the GPU of Windows' driver as Linux sees it under WSL.
const wslDevice = "/dev/dxg"

// underWSL says whether there is such a GPU. Windows ends what takes long on it, whatever CUDA says.
func underWSL(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TimeProducts has the devices that are opened from then on compute matrix products by the algorithm of
// cuBLASLt that is the fastest when a shape is first used. What was timed is kept in the folder dir;
// where that is empty, for this process only.
func (g *GPU) TimeProducts(dir string) {
	var store cuda.Store
	if dir != "" {
		store = timedFiles{dir}
	}
	g.choices = cuda.NewChoices(true, store)
}

// TellPinning has the devices that are opened from then on tell f how many bytes of host memory they have pinned so
// far, and of how many.
func (g *GPU) TellPinning(f func(done, total int64)) { g.pinning = f }

// TellHang has the devices that are opened from then on tell f of work that does not end, on a goroutine of theirs.
func (g *GPU) TellHang(f func(text string)) { g.hang = f }

// First is the ordinal of the first GPU, which a run on one GPU takes. There is no key for
// it: as in other programs that use CUDA, CUDA_VISIBLE_DEVICES says which GPU is the first,
// and a GPU that the variable hides is not touched.
const First = 0

// bind binds CUDA's functions, once.
func (g *GPU) bind() error {
	if g.err != nil || g.cuda != nil {
		return g.err
	}
	c, err := cudart.New(g.symbols)
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	g.cuda, g.open = c, new(atomic.Int32)
	return nil
}

// Count is how many GPUs there are, as CUDA_VISIBLE_DEVICES leaves them.
func (g *GPU) Count() (int, error) {
	if err := g.bind(); err != nil {
		return 0, err
	}
	return g.cuda.DeviceCount()
}

// OpenAll makes the devices of these ordinals, each as Open does.
func (g *GPU) OpenAll(ordinals []int, limit config.Bytes) (out []device.Device, err error) {
	for _, n := range ordinals {
		dev, err := g.Open(n, limit)
		if err != nil {
			return nil, errors.Join(err, CloseAll(out))
		}
		out = append(out, dev)
	}
	return out, nil
}

// Open makes the device of that ordinal with a budget of limit bytes, 0 for all
// that is free. Its Close ends an emulator too, if no other device of it is open. The error
// says what is missing.
func (g *GPU) Open(ordinal int, limit config.Bytes) (device.Device, error) {
	if err := g.bind(); err != nil {
		return nil, err
	}
	dev, err := cuda.New(cuda.Options{CUDA: g.cuda, Ordinal: ordinal, MemoryLimit: int64(limit), Choices: g.choices, OwnMatMul: g.own, Watchdog: underWSL(wslDevice), Pinning: g.pinning, Hang: g.hang, Available: available})
	switch {
	case g.end == nil:
		return dev, err
	case err != nil && g.open.Load() > 0:
		return nil, err
	case err != nil:
		return nil, errors.Join(err, g.end())
	}
	g.open.Add(1)
	return emulated{dev.(gpuDevice), g.end, g.open}, nil
}

// available says how much host memory a process can still take, for GPUs that have no other.
func available() (int64, bool) {
	room := host.AvailableMemory()
	return room.Bytes, room.Known
}

// Options say what to open.
type Options struct {
	Device      string       // cuda or cpu
	Ordinal     int          // of cuda: which GPU, counted from First
	MemoryLimit config.Bytes // the device's budget; 0 is all that is free
	// OwnMatMul has a GPU compute matrix products by mt's own kernels, also where there is cuBLASLt.
	OwnMatMul bool
	// TimedMatMul has a GPU compute matrix products by the algorithm of cuBLASLt that is the fastest when a shape is first used.
	TimedMatMul bool
	// Hang is told of a GPU's work that does not end; nil: standard error is.
	Hang func(text string)
	// Of the CPU.
	Threads int  // goroutines that compute; 0 is one for each core
	Unified bool // computes on host memory in place
	// LinkLimit is how many bytes a second its copies move at most, each way; 0: no limit.
	LinkLimit float64
}

// gpu looks for the GPU that o describes.
func (o Options) gpu() GPU {
	g := FindGPU(nil)
	g.own, g.hang = o.OwnMatMul, o.Hang
	if o.Hang == nil {
		g.hang = func(text string) { fmt.Fprintln(os.Stderr, "note: "+text) }
	}
	if o.TimedMatMul {
		g.TimeProducts("")
	}
	return g
}

// Open opens the GPU, or the emulator of this build, or the CPU. The device's
// Close gives it back.
func Open(o Options) (device.Device, error) {
	if o.Device == "cuda" {
		g := o.gpu()
		return g.Open(o.Ordinal, o.MemoryLimit)
	}
	return cpu.New(cpu.Options{Threads: o.Threads, MemoryLimit: int64(o.MemoryLimit), Unified: o.Unified, LinkLimit: o.LinkLimit})
}

// OpenAll opens n devices as Open does: the first n GPUs (0: all), or as many devices of the CPU
// (0: one), which share its cores.
func OpenAll(o Options, n int) (out []device.Device, err error) {
	if o.Device == "cuda" {
		g := o.gpu()
		has, err := g.Count()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			n = max(1, has)
		}
		var ordinals []int
		for i := range n {
			ordinals = append(ordinals, o.Ordinal+i)
		}
		if has > 0 && o.Ordinal+n > has {
			return nil, fmt.Errorf("cuda: %d GPUs are asked for, and there are %d; CUDA_VISIBLE_DEVICES hides others", o.Ordinal+n, has)
		}
		return g.OpenAll(ordinals, o.MemoryLimit)
	}
	n = max(1, n)
	if o.Threads == 0 && n > 1 {
		o.Threads = max(1, runtime.GOMAXPROCS(0)/n)
	}
	for range n {
		dev, err := Open(o)
		if err != nil {
			return nil, errors.Join(err, CloseAll(out))
		}
		out = append(out, dev)
	}
	return out, nil
}

// CloseAll closes devices.
func CloseAll(devs []device.Device) error {
	var errs []error
	for _, d := range devs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// gpuDevice is what package cuda opens.
type gpuDevice interface {
	device.Device
	Notes() []string
	Fallbacks() []string
	OwnProducts() int64
	CuBLASLt() int
	Algorithms() []cuda.Algorithm
	ResumeAlgorithms(recorded map[string][8]uint64)
	RunsSM90a() bool
	UseAttention(kernels string) error
	InPlace(on bool) error
}

// emulated is a device whose Close ends its emulator too.
type emulated struct {
	gpuDevice
	end  func() error
	open *atomic.Int32
}

// Unwrap is the device itself.
func (e emulated) Unwrap() device.Device { return e.gpuDevice }

// Close gives the device back and tells what the emulator found wrong.
func (e emulated) Close() error {
	err := e.gpuDevice.Close()
	if e.open.Add(-1) == 0 {
		err = errors.Join(err, e.end())
	}
	return err
}
