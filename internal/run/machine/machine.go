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

// emulator starts an emulated GPU in builds with the tag emu; it is nil in other builds. The returned function ends
// the emulator and returns an error if calls broke the driver's rules. The error says why the emulator cannot start.
var emulator func() (cudart.Symbols, func() error, error)

// Emulated reports whether device: cuda is an emulator in this build.
func Emulated() bool { return emulator != nil }

// Search looks for CUDA's libraries on this machine. Tests set another function, which finds none.
var Search = func() cudart.Found { return cudart.Find(cudart.ThisMachine()) }

// GPU is the access to the GPUs of this machine, or of the emulator, before one of them is opened.
type GPU struct {
	Driver bool // there is an NVIDIA driver

	symbols cudart.Symbols // nil: err says why
	err     error
	found   cudart.Found            // empty with an emulator
	cuda    *cudart.CUDA            // shared by all open devices, so they share pinned host memory
	choices *cuda.Choices           // shared by all open devices; nil: cuBLASLt's first proposals
	own     bool                    // matrix products use mt's own kernels
	pinning func(done, total int64) // see TellPinning
	hang    func(text string)       // see TellHang
	end     func() error            // ends an emulator; nil without an emulator
	open    *atomic.Int32           // open emulated devices; closing the last one ends the emulator
}

// FindGPU returns the access to the GPUs. Non-nil symbols replace CUDA's functions. Otherwise
// FindGPU uses the emulator in a build with the tag emu, or CUDA's libraries on this machine.
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

// wslDevice is the file by which Linux under WSL sees the Windows driver's GPU.
const wslDevice = "/dev/dxg"

// underWSL reports whether the file at path exists, the mark of Linux under Windows (WSL). There Windows kills long
// kernels, although CUDA reports that it does not.
func underWSL(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TimeProducts makes devices that are opened later use cuBLASLt's fastest algorithm for each matrix product. It is
// found by timing when a shape is first used. The folder dir keeps the timings; "" keeps them only in this process.
func (g *GPU) TimeProducts(dir string) {
	var store cuda.Store
	if dir != "" {
		store = timedFiles{dir}
	}
	g.choices = cuda.NewChoices(true, store)
}

// TellPinning sets f for devices that are opened later. While they pin host memory, they call f
// with the bytes pinned so far and in total, for a progress display.
func (g *GPU) TellPinning(f func(done, total int64)) { g.pinning = f }

// TellHang sets f for devices opened later. They call f, on a separate goroutine, when enqueued work does not end.
func (g *GPU) TellHang(f func(text string)) { g.hang = f }

// First is the ordinal of the GPU for a run on one GPU. The environment variable CUDA_VISIBLE_DEVICES decides which GPU
// is first, as in other CUDA programs. Hidden GPUs are not touched.
const First = 0

// bind loads CUDA's functions at its first call. Later calls return the same error or nil.
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

// Count returns the number of GPUs that CUDA_VISIBLE_DEVICES leaves visible.
func (g *GPU) Count() (int, error) {
	if err := g.bind(); err != nil {
		return 0, err
	}
	return g.cuda.DeviceCount()
}

// OpenAll opens the devices with these ordinals, each with a budget of limit bytes (0: all free memory). If one of
// them does not open, it closes the others.
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

// Open opens the device with that ordinal and a budget of limit bytes; 0 means all free memory. The error names what
// this machine lacks. Closing the last open device of an emulator ends the emulator.
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

// available returns how many more bytes of host memory a process can take; false if unknown. A GPU without memory of
// its own takes its memory from there.
func available() (int64, bool) {
	room := host.AvailableMemory()
	return room.Bytes, room.Known
}

// Options says which device to open, and how.
type Options struct {
	Device      string       // cuda or cpu
	Ordinal     int          // cuda: the GPU, counted from First
	MemoryLimit config.Bytes // the device's memory budget; 0: all free memory
	// OwnMatMul makes a GPU use mt's own kernels for matrix products even if cuBLASLt is there.
	OwnMatMul bool
	// TimedMatMul makes a GPU use cuBLASLt's fastest algorithm for each matrix product, timed when a shape is first
	// used.
	TimedMatMul bool
	// Hang is called when work of a GPU does not end; nil: a note on standard error.
	Hang func(text string)
	// Threads and Unified are for the CPU only.
	Threads int  // computing goroutines; 0: one per core
	Unified bool // compute on host memory in place
	// LinkLimit caps the copies of the CPU device in bytes per second, each way; 0: no limit.
	LinkLimit float64
}

// gpu returns the access to the GPUs, with the settings in o for devices that are opened later.
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

// Open opens the GPU, this build's emulator, or the CPU. The device's Close frees it.
func Open(o Options) (device.Device, error) {
	if o.Device == "cuda" {
		g := o.gpu()
		return g.Open(o.Ordinal, o.MemoryLimit)
	}
	return cpu.New(cpu.Options{Threads: o.Threads, MemoryLimit: int64(o.MemoryLimit), Unified: o.Unified, LinkLimit: o.LinkLimit})
}

// OpenAll opens n devices of the kind that o names, with the settings in o: the first n GPUs (0: all of them), or n CPU
// devices (0: one), which share the cores.
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

// CloseAll closes the devices and joins their errors.
func CloseAll(devs []device.Device) error {
	var errs []error
	for _, d := range devs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// gpuDevice has all methods of package cuda's devices. An emulated device embeds one and so keeps
// all methods.
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

// emulated is a device on an emulator. Closing the last such device ends the emulator.
type emulated struct {
	gpuDevice
	end  func() error
	open *atomic.Int32
}

// Unwrap returns the device below.
func (e emulated) Unwrap() device.Device { return e.gpuDevice }

// Close closes the device and returns the mistakes that the emulator found.
func (e emulated) Close() error {
	err := e.gpuDevice.Close()
	if e.open.Add(-1) == 0 {
		err = errors.Join(err, e.end())
	}
	return err
}
