package train

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"mt/cudart"
	"mt/device"
	"mt/device/cpu"
	"mt/device/cuda"
	"mt/internal/config"
	"mt/internal/parallel"
)

// emulator starts an emulated GPU in builds with the tag emu, and is nil in all
// others. The function that it returns ends it and says what the calls of the
// run had wrong.
var emulator func() (cudart.Symbols, func() error)

// Emulated says whether device: cuda is an emulator in this build.
func Emulated() bool { return emulator != nil }

// searchCUDA looks for CUDA's libraries on this machine.
var searchCUDA = func() cudart.Found { return cudart.Find(cudart.ThisMachine()) }

// gpu is what there is to run device: cuda on.
type gpu struct {
	symbols cudart.Symbols // nil: err says why
	driver  bool           // there is an NVIDIA driver
	err     error
	found   cudart.Found // empty with an emulator
	end     func() error // of an emulator, else nil
}

// findGPU looks for CUDA's libraries, or takes those of a test or an emulator.
func findGPU(symbols cudart.Symbols) gpu {
	if symbols != nil {
		return gpu{symbols: symbols}
	}
	if emulator != nil {
		symbols, end := emulator()
		return gpu{symbols: symbols, end: end}
	}
	g := gpu{found: searchCUDA()}
	g.driver = g.found.Library(cudart.Driver).Path != ""
	if g.symbols, g.err = g.found.Open(); g.err != nil {
		g.err = fmt.Errorf("cuda: %w", g.err)
	}
	return g
}

// open makes the device with a budget of limit bytes, 0 for all that is free.
func (g *gpu) open(limit config.Bytes) (device.Device, error) {
	if g.err != nil {
		return nil, g.err
	}
	c, err := cudart.New(g.symbols)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return cuda.New(cuda.Options{CUDA: c, MemoryLimit: int64(limit)})
}

// OpenCUDA opens the GPU, or the emulator of this build, with a budget of limit
// bytes, 0 for all that is free. The device's Close gives it back.
func OpenCUDA(limit config.Bytes) (device.Device, error) {
	g := findGPU(nil)
	dev, err := g.open(limit)
	if err == nil && g.end != nil {
		dev = emulated{dev, g.end}
	}
	return dev, err
}

// emulated is a device whose Close ends its emulator too.
type emulated struct {
	device.Device
	end func() error
}

// Close gives the device back and tells what the emulator found wrong.
func (e emulated) Close() error { return errors.Join(e.Device.Close(), e.end()) }

// Notes are the device's.
func (e emulated) Notes() []string { return e.Device.(interface{ Notes() []string }).Notes() }

// resolveDevice settles device, compute dtype and binding. A GPU is opened here:
// what its context takes is part of the plan.
func (j *job) resolveDevice(o Options) error {
	c := j.c
	var err error
	switch c.Device {
	case "auto":
		err = j.chooseDevice(o)
	case "cuda":
		err = j.takeGPU(o)
	}
	if err != nil {
		return err
	}
	dtype, binding := "fp32", "unified"
	if c.Device == "cuda" {
		dtype, binding = "bf16", "copy"
	}
	if c.ComputeDType == "auto" {
		c.ComputeDType = dtype
	}
	if c.ComputeDType == "bf16" {
		j.act = device.BF16
	}
	if c.Binding == "auto" {
		c.Binding = binding
	}
	if c.Binding == "unified" && c.Device == "cuda" {
		return c.Errorf("binding", "binding: unified: a GPU does not compute on host memory; leave binding out or set copy")
	}
	j.unified = c.Binding == "unified"
	return nil
}

// chooseDevice is device: auto: the GPU if there is one that works, else the
// CPU, with a word on why. An emulator is only taken when it is asked for. A
// sketch with device_memory is for a GPU, wherever it is made.
func (j *job) chooseDevice(o Options) error {
	if o.sketch && j.c.DeviceMemory > 0 {
		j.c.Device = "cuda"
		return j.takeGPU(o)
	}
	j.c.Device = "cpu"
	if emulator != nil && j.hooks.symbols == nil {
		j.note("device: auto takes the CPU; device: cuda is an emulator in this build")
		return nil
	}
	g := findGPU(j.hooks.symbols)
	dev, err := g.open(j.c.DeviceMemory)
	switch {
	case err == nil:
		j.c.Device = "cuda"
		j.keep(dev, nil)
	case g.driver && !errors.Is(err, cudart.ErrNoDevice):
		j.note("device: auto takes the CPU although there is an NVIDIA driver: %v", err)
	default:
		j.note("no NVIDIA GPU here: computing on the CPU")
	}
	return nil
}

// takeGPU is device: cuda. A plan can do without a GPU.
func (j *job) takeGPU(o Options) error {
	g := findGPU(j.hooks.symbols)
	dev, err := g.open(j.c.DeviceMemory)
	switch {
	case err == nil && o.sketch && dev.Usage().Limit < int64(j.c.DeviceMemory):
		if g.end != nil {
			dev = emulated{dev, g.end}
		}
		name, has := dev.Name(), dev.Usage().Limit
		if err := dev.Close(); err != nil {
			return fmt.Errorf("close the device: %w", err)
		}
		j.planOnPaper(fmt.Sprintf("the %s here has %s to give", name, config.Bytes(has)))
	case err == nil:
		j.keep(dev, g.end)
	case !o.paper:
		return j.c.Errorf("device", "device: %w; device: cpu needs no GPU", err)
	case j.c.DeviceMemory == 0:
		return j.c.Errorf("device", "device: %w; device: cpu needs none, and with device_memory the plan can be made without a GPU", err)
	default:
		why := "no GPU to ask"
		if g.driver {
			why += fmt.Sprintf(" (%v)", err)
		}
		j.planOnPaper(why)
	}
	return nil
}

// planOnPaper plans for a GPU of device_memory that is not here.
func (j *job) planOnPaper(why string) {
	j.context = cuda.AssumedContext
	j.note("%s: the plan is for one of %s, of which %s are taken to go to its context; device: cpu plans for this machine's CPU",
		why, j.c.DeviceMemory, config.Bytes(j.context))
}

// keep makes dev the device of the job and plans with what it has. end, unless
// nil, comes after its Close.
func (j *job) keep(dev device.Device, end func() error) {
	j.dev = dev
	j.closers = append(j.closers, func() {
		j.closing = dev.Close()
		if end != nil && j.closing == nil {
			j.closing = end()
		}
	})
	use := dev.Usage()
	j.context, j.budget = use.Now[device.ForContext], use.Limit
}

// deviceBudget is the device memory in bytes that the plan may use; 0 is any.
func (j *job) deviceBudget() int64 {
	if j.dev != nil {
		return j.budget
	}
	return int64(j.c.DeviceMemory)
}

// openDevice makes the device, unless it is open, and the host's worker pool.
func (j *job) openDevice() (device.Device, *parallel.Pool, error) {
	if j.dev == nil {
		dev, err := cpu.New(cpu.Options{Threads: j.c.Threads, MemoryLimit: int64(j.c.DeviceMemory), Unified: j.unified})
		if err != nil {
			return nil, nil, err
		}
		j.keep(dev, nil)
	}
	pool := parallel.New(j.c.Threads)
	j.closers = append(j.closers, pool.Close)
	return j.dev, pool, nil
}

// deviceNotes are what the device has to say that was not told yet.
func (j *job) deviceNotes() []string {
	d, ok := j.dev.(interface{ Notes() []string })
	if !ok {
		return nil
	}
	notes := d.Notes()[j.told:]
	j.told += len(notes)
	return notes
}

// CUDA is what this machine has for device: cuda.
type CUDA struct {
	Device    string                `json:"device,omitempty"` // the GPU, if it can be used
	Memory    config.Bytes          `json:"memory_bytes,omitempty"`
	Problem   string                `json:"problem,omitempty"` // why it cannot
	State     *GPUState             `json:"state,omitempty"`
	Notes     []string              `json:"notes,omitempty"`
	Emulated  bool                  `json:"emulated,omitempty"`
	Libraries []cudart.FoundLibrary `json:"libraries,omitempty"`

	found cudart.Found
}

// FindCUDA opens the GPU, looks at it and closes it.
func FindCUDA() CUDA {
	g := findGPU(nil)
	out := CUDA{Emulated: Emulated(), Libraries: g.found.Libraries, found: g.found}
	dev, err := g.open(0)
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	out.Device, out.Memory = dev.Name(), config.Bytes(dev.Usage().Limit)
	if c, err := cudart.New(g.symbols); err == nil {
		out.State = gpuState(c)
	}
	if d, ok := dev.(interface{ Notes() []string }); ok {
		out.Notes = d.Notes()
	}
	if err := dev.Close(); err != nil {
		out.Problem = err.Error()
	}
	return out
}

// String is one line. What is missing, WriteLibraries tells.
func (c CUDA) String() string {
	var missing []string
	for _, l := range c.Libraries {
		if l.Required && l.Path == "" {
			missing = append(missing, l.Library.File())
		}
	}
	switch {
	case len(missing) > 0:
		return "not usable: no " + strings.Join(missing, ", no ")
	case c.Problem != "":
		return "not usable: " + c.Problem
	case c.Emulated:
		return fmt.Sprintf("%s (in this build device: cuda is an emulator)", c.Device)
	}
	return fmt.Sprintf("%s, %s to use", c.Device, c.Memory)
}

// WriteLibraries prints where CUDA's libraries are, or where they were looked
// for and how to get them.
func (c CUDA) WriteLibraries(w io.Writer) error {
	if len(c.found.Libraries) == 0 {
		return nil
	}
	_, err := fmt.Fprint(w, c.found)
	return err
}
