package train

import (
	"errors"
	"fmt"

	"mt/cudart"
	"mt/device"
	"mt/device/cuda"
	"mt/internal/accounts"
	"mt/internal/config"
	"mt/internal/machine"
	"mt/internal/parallel"
)

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
	if machine.Emulated() && j.hooks.symbols == nil {
		j.note("device: auto takes the CPU; device: cuda is an emulator in this build")
		return nil
	}
	g := machine.FindGPU(j.hooks.symbols)
	dev, err := g.Open(machine.First, j.c.DeviceMemory)
	switch {
	case err == nil:
		j.c.Device = "cuda"
		j.keep(dev)
	case g.Driver && !errors.Is(err, cudart.ErrNoDevice):
		j.note("device: auto takes the CPU although there is an NVIDIA driver: %v", err)
	default:
		j.note("no NVIDIA GPU here: computing on the CPU")
	}
	return nil
}

// takeGPU is device: cuda. A plan can do without a GPU.
func (j *job) takeGPU(o Options) error {
	g := machine.FindGPU(j.hooks.symbols)
	dev, err := g.Open(machine.First, j.c.DeviceMemory)
	switch {
	case err == nil && o.sketch && dev.Usage().Limit < int64(j.c.DeviceMemory):
		name, has := dev.Name(), dev.Usage().Limit
		if err := dev.Close(); err != nil {
			return fmt.Errorf("close the device: %w", err)
		}
		j.planOnPaper(fmt.Sprintf("the %s here has %s to give", name, config.Bytes(has)))
	case err == nil:
		j.keep(dev)
	case !o.paper:
		return j.c.Errorf("device", "device: %w; device: cpu needs no GPU", err)
	case j.c.DeviceMemory == 0:
		return j.c.Errorf("device", "device: %w; device: cpu needs none, and with device_memory the plan can be made without a GPU", err)
	default:
		why := "no GPU to ask"
		if g.Driver {
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

// keep makes dev the device of the job and plans with what it has.
func (j *job) keep(dev device.Device) {
	j.dev = dev
	j.closers = append(j.closers, func() { j.closing = dev.Close() })
	use := dev.Usage()
	j.context, j.budget = use.Now[accounts.Context], use.Limit
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
		dev, err := machine.Open(machine.Options{Device: "cpu", Threads: j.c.Threads, MemoryLimit: j.c.DeviceMemory, Unified: j.unified})
		if err != nil {
			return nil, nil, err
		}
		j.keep(dev)
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

// rateSize is the largest size of matrices to measure the rate with: enough for
// a GPU to reach it, little enough for a CPU to be done soon.
func (j *job) rateSize() int {
	switch {
	case j.c.Device != "cuda":
		return 1024
	case machine.Emulated() || j.hooks.symbols != nil:
		return 64 // what an emulator reaches means nothing
	}
	return 8192
}
