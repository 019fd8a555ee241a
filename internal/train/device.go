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

// resolveDevice settles device, compute_dtype and binding. A GPU is opened here, since
// the memory that its context takes is part of the plan.
func (j *opening) resolveDevice(o Options) error {
	c := j.c
	err := j.countDevices(o)
	switch {
	case err != nil:
	case o.Forecast.Machine != nil:
		err = j.takeProfile(o.Forecast.Machine)
	case c.Device == "auto":
		err = j.chooseDevice(o)
	case c.Device == "cuda":
		err = j.takeGPU(o)
	}
	if err == nil {
		err = j.checkNumbered()
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
	if err := j.checkTimed(); err != nil {
		return err
	}
	return j.weighDevices(o.Forecast.Machine)
}

// chooseDevice settles device: auto. It takes the GPU if there is one that works, and
// otherwise the CPU, with a note that says why. An emulator is taken only where device:
// cuda asks for it. A sketch with device_memory is for a GPU, also on a machine without
// one.
func (j *opening) chooseDevice(o Options) error {
	if j.a.Sketch && j.c.DeviceMemory > 0 {
		j.c.Device = "cuda"
		return j.takeGPU(o)
	}
	j.c.Device = "cpu"
	if machine.Emulated() && j.hooks.symbols == nil {
		j.note("device: auto takes the CPU; device: cuda is an emulator in this build")
		return nil
	}
	g := j.findGPU(o)
	devs, err := j.openGPUs(&g)
	switch {
	case err == nil:
		j.c.Device = "cuda"
		j.keep(devs)
	case config.IsUsage(err):
		return err
	case g.Driver && !errors.Is(err, cudart.ErrNoDevice):
		j.note("device: auto takes the CPU although there is an NVIDIA driver: %v", err)
	default:
		j.note("no NVIDIA GPU here: computing on the CPU")
	}
	return nil
}

// findGPU looks for a GPU whose devices show on o.Stderr how far pinning is, and work that does not end.
func (j *opening) findGPU(o Options) machine.GPU {
	g := machine.FindGPU(j.hooks.symbols)
	show := o.Progress()
	g.TellPinning(func(done, total int64) { show(done, total, pinning) })
	g.TellHang(o.showHang)
	return g
}

// takeGPU settles device: cuda. Where no GPU can be used it fails, unless only a plan
// is wanted and device_memory says how large the GPU is.
func (j *opening) takeGPU(o Options) error {
	g := j.findGPU(o)
	devs, err := j.openGPUs(&g)
	switch {
	case config.IsUsage(err) && !j.a.Paper:
		return err
	case err == nil && j.a.Sketch && devs[0].Usage().Limit < int64(j.c.DeviceMemory):
		name, has := devs[0].Name(), devs[0].Usage().Limit
		if err := machine.CloseAll(devs); err != nil {
			return fmt.Errorf("close the device: %w", err)
		}
		j.planOnPaper(fmt.Sprintf("the %s here has %s to give", name, config.Bytes(has)))
	case err == nil:
		j.keep(devs)
	case !j.a.Paper:
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

// planOnPaper plans for a GPU that is not here, with device_memory bytes.
func (j *opening) planOnPaper(why string) {
	j.context = cuda.AssumedContext
	j.note("%s: the plan is for one of %s, of which %s are taken to go to its context; device: cpu plans for this machine's CPU",
		why, j.c.DeviceMemory, config.Bytes(j.context))
}

// keep makes devs the devices of the job, and plans with the memory that each of them has.
func (j *opening) keep(devs []device.Device) {
	j.devs, j.lanes = devs, len(devs)
	j.closers.addErr(func() error { return closeDevices(devs) })
	for i, dev := range devs {
		use := dev.Usage()
		j.integrated = j.integrated || use.Integrated
		if i == 0 || use.Limit > 0 && use.Limit < j.budget {
			j.budget = use.Limit
		}
		j.context = max(j.context, use.Now[accounts.Context])
		if use.Limit > 0 {
			j.memory = append(j.memory, use.Limit)
		}
	}
	if len(j.memory) != len(devs) || len(devs) == 1 {
		j.memory = nil
	}
}

// deviceBudget is how much device memory in bytes the plan may use; 0: no limit.
func (j *Inputs) deviceBudget() int64 {
	if j.devs != nil {
		return j.budget
	}
	return int64(j.c.DeviceMemory)
}

// rateSize is the largest number of rows and columns of the matrices that the matrix
// product rate is measured with: enough for a GPU to reach its full rate, and few
// enough for a CPU to be done soon.
func (j *Inputs) rateSize() int {
	switch {
	case j.c.Device != "cuda":
		return machine.CPURateSize
	case machine.Emulated() || j.hooks.symbols != nil:
		return 64 // an emulator's rate means nothing
	}
	return 8192
}

// closeDevices closes devs.
func closeDevices(devs []device.Device) error {
	if err := machine.CloseAll(devs); err != nil {
		return fmt.Errorf("close the device: %w", err)
	}
	return nil
}

// Hardware is what a run computes on.
type Hardware struct {
	devs    []device.Device // by lane
	pool    *parallel.Pool  // the host's threads
	closers closers
}

// Close closes what start has opened.
func (h *Hardware) Close() error { return h.closers.close() }

// start makes the CPU as many devices as the run asks for, unless it has GPUs, and starts the
// host's worker pool.
func (j *Inputs) start() (*Hardware, error) {
	h := &Hardware{devs: j.devs}
	if h.devs == nil {
		devs, err := j.openCPUs(j.threads())
		if err != nil {
			return nil, err
		}
		h.devs = devs
		h.closers.addErr(func() error { return closeDevices(devs) })
	}
	h.pool = parallel.New(j.threads())
	h.closers.add(h.pool.Close)
	return h, nil
}
