package open

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
	"mt/internal/run/report"
	"mt/internal/run/settings"
)

// resolveDevice settles device, compute_dtype and binding. A GPU is opened here, since
// the memory that its context takes is part of the plan.
func (j *opening) resolveDevice(o settings.Options) error {
	c := j.Config
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
	if c.ComputeDType == "auto" {
		c.ComputeDType = "fp32"
		if c.Device == "cuda" {
			c.ComputeDType = "bf16"
		}
	}
	if c.ComputeDType == "bf16" {
		j.Act = device.BF16
	}
	if err := j.settleBinding(); err != nil {
		return err
	}
	if err := j.checkTimed(); err != nil {
		return err
	}
	return j.weighDevices(o.Forecast.Machine)
}

// chooseDevice settles device: auto. It takes the GPU if there is one that works, and
// otherwise the CPU, with a note that says why. An emulator is taken only where device:
// cuda asks for it. A sketch with device_memory is for a GPU, also on a machine without
// one.
func (j *opening) chooseDevice(o settings.Options) error {
	if j.a.Sketch && j.Config.DeviceMemory > 0 {
		j.Config.Device = "cuda"
		return j.takeGPU(o)
	}
	j.Config.Device = "cpu"
	if machine.Emulated() && j.Hooks.Symbols == nil {
		j.note("device: auto takes the CPU; device: cuda is an emulator in this build")
		return nil
	}
	g := j.findGPU(o)
	devs, err := j.openGPUs(&g)
	switch {
	case err == nil:
		j.Config.Device = "cuda"
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
func (j *opening) findGPU(o settings.Options) machine.GPU {
	g := machine.FindGPU(j.Hooks.Symbols)
	show := report.Reading(o)
	g.TellPinning(func(done, total int64) { show(done, total, report.Pinning) })
	g.TellHang(func(text string) { report.ShowHang(o, text) })
	return g
}

// takeGPU settles device: cuda. Where no GPU can be used it fails, unless only a plan
// is wanted and device_memory says how large the GPU is.
func (j *opening) takeGPU(o settings.Options) error {
	g := j.findGPU(o)
	devs, err := j.openGPUs(&g)
	switch {
	case config.IsUsage(err) && !j.a.Paper:
		return err
	case err == nil && j.a.Sketch && devs[0].Usage().Limit < int64(j.Config.DeviceMemory):
		name, has := devs[0].Name(), devs[0].Usage().Limit
		if err := machine.CloseAll(devs); err != nil {
			return fmt.Errorf("close the device: %w", err)
		}
		j.planOnPaper(fmt.Sprintf("the %s here has %s to give", name, config.Bytes(has)))
	case err == nil:
		j.keep(devs)
	case !j.a.Paper:
		return j.Config.Errorf("device", "device: %w; device: cpu needs no GPU", err)
	case j.Config.DeviceMemory == 0:
		return j.Config.Errorf("device", "device: %w; device: cpu needs none, and with device_memory the plan can be made without a GPU", err)
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
		why, j.Config.DeviceMemory, config.Bytes(j.context))
}

// keep makes devs the devices of the job, and plans with the memory that each of them has.
func (j *opening) keep(devs []device.Device) {
	j.Devices, j.Lanes = devs, len(devs)
	j.closers.AddErr(func() error { return closeDevices(devs) })
	for i, dev := range devs {
		use := dev.Usage()
		j.Integrated = j.Integrated || use.Integrated
		if i == 0 || use.Limit > 0 && use.Limit < j.budget {
			j.budget = use.Limit
		}
		j.context = max(j.context, use.Now[accounts.Context])
		if use.Limit > 0 {
			j.LaneMemory = append(j.LaneMemory, use.Limit)
		}
	}
	if len(j.LaneMemory) != len(devs) || len(devs) == 1 {
		j.LaneMemory = nil
	}
}

// DeviceBudget is how much device memory in bytes the plan may use; 0: no limit.
func (j *Inputs) DeviceBudget() int64 {
	if j.Devices != nil {
		return j.budget
	}
	return int64(j.Config.DeviceMemory)
}

// RateSize is the largest number of rows and columns of the matrices that the matrix
// product rate is measured with: enough for a GPU to reach its full rate, and few
// enough for a CPU to be done soon.
func (j *Inputs) RateSize() int {
	switch {
	case j.Config.Device != "cuda":
		return machine.CPURateSize
	case j.emulated():
		return 64 // an emulator's rate means nothing
	}
	return 8192
}

// emulated says whether GPUs are an emulator's.
func (j *Inputs) emulated() bool { return machine.Emulated() || j.Hooks.Symbols != nil }

// closeDevices closes devs.
func closeDevices(devs []device.Device) error {
	if err := machine.CloseAll(devs); err != nil {
		return fmt.Errorf("close the device: %w", err)
	}
	return nil
}

// Hardware is what a run computes on.
type Hardware struct {
	Devs    []device.Device // by lane
	Pool    *parallel.Pool  // the host's threads
	closers Closers
}

// Close closes what start has opened.
func (h *Hardware) Close() error { return h.closers.Close() }

// OpenHardware makes the CPU as many devices as the run asks for, unless it has GPUs, and starts the
// host's worker pool.
func (j *Inputs) OpenHardware() (*Hardware, error) {
	h := &Hardware{Devs: j.Devices}
	if h.Devs == nil {
		devs, err := j.OpenCPUs(j.threads())
		if err != nil {
			return nil, err
		}
		h.Devs = devs
		h.closers.AddErr(func() error { return closeDevices(devs) })
	}
	h.Pool = parallel.New(j.threads())
	h.closers.Add(h.Pool.Close)
	return h, nil
}
