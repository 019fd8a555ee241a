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

// choosing settles which devices a run computes on.
type choosing struct {
	*opening
	oneDevice bool // it computes on one device, whatever devices says
}

// resolveDevice settles device, compute_dtype and binding. A GPU is opened here, since
// the memory that its context takes is part of the plan.
func (p *choosing) resolveDevice(o settings.Options) error {
	c := p.Config
	err := p.countDevices(o)
	switch {
	case err != nil:
	case o.Forecast.Machine != nil:
		err = p.takeProfile(o.Forecast.Machine)
	case c.Device == "auto":
		err = p.chooseDevice(o)
	case c.Device == "cuda":
		err = p.takeGPU(o)
	}
	if err == nil {
		err = p.checkNumbered()
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
		p.Act = device.BF16
	}
	if err := p.settleBinding(); err != nil {
		return err
	}
	if err := p.checkTimed(); err != nil {
		return err
	}
	return p.weighDevices(o.Forecast.Machine)
}

// chooseDevice settles device: auto. It takes the GPU if there is one that works, and
// otherwise the CPU, with a note that says why. An emulator is taken only where device:
// cuda asks for it. A sketch with device_memory is for a GPU, also on a machine without
// one.
func (p *choosing) chooseDevice(o settings.Options) error {
	if p.a.Sketch && p.Config.DeviceMemory > 0 {
		p.Config.Device = "cuda"
		return p.takeGPU(o)
	}
	p.Config.Device = "cpu"
	if machine.Emulated() && p.Hooks.Symbols == nil {
		p.note("device: auto takes the CPU; device: cuda is an emulator in this build")
		return nil
	}
	g := p.findGPU(o)
	devs, err := p.openGPUs(&g)
	switch {
	case err == nil:
		p.Config.Device = "cuda"
		p.keep(devs)
	case config.IsUsage(err):
		return err
	case g.Driver && !errors.Is(err, cudart.ErrNoDevice):
		p.note("device: auto takes the CPU although there is an NVIDIA driver: %v", err)
	default:
		p.note("no NVIDIA GPU here: computing on the CPU")
	}
	return nil
}

// findGPU looks for a GPU whose devices show on o.Stderr how far pinning is, and work that does not end.
func (p *choosing) findGPU(o settings.Options) machine.GPU {
	g := machine.FindGPU(p.Hooks.Symbols)
	show := report.Reading(o)
	g.TellPinning(func(done, total int64) { show(done, total, report.Pinning) })
	g.TellHang(func(text string) { report.ShowHang(o, text) })
	return g
}

// takeGPU settles device: cuda. Where no GPU can be used it fails, unless only a plan
// is wanted and device_memory says how large the GPU is.
func (p *choosing) takeGPU(o settings.Options) error {
	g := p.findGPU(o)
	devs, err := p.openGPUs(&g)
	switch {
	case config.IsUsage(err) && !p.a.Paper:
		return err
	case err == nil && p.a.Sketch && devs[0].Usage().Limit < int64(p.Config.DeviceMemory):
		name, has := devs[0].Name(), devs[0].Usage().Limit
		if err := machine.CloseAll(devs); err != nil {
			return fmt.Errorf("close the device: %w", err)
		}
		p.planOnPaper(fmt.Sprintf("the %s here has %s to give", name, config.Bytes(has)))
	case err == nil:
		p.keep(devs)
	case !p.a.Paper:
		return p.Config.Errorf("device", "device: %w; device: cpu needs no GPU", err)
	case p.Config.DeviceMemory == 0:
		return p.Config.Errorf("device", "device: %w; device: cpu needs none, and with device_memory the plan can be made without a GPU", err)
	default:
		why := "no GPU to ask"
		if g.Driver {
			why += fmt.Sprintf(" (%v)", err)
		}
		p.planOnPaper(why)
	}
	return nil
}

// planOnPaper plans for a GPU that is not here, with device_memory bytes.
func (p *choosing) planOnPaper(why string) {
	p.context = cuda.AssumedContext
	p.note("%s: the plan is for one of %s, of which %s are taken to go to its context; device: cpu plans for this machine's CPU",
		why, p.Config.DeviceMemory, config.Bytes(p.context))
}

// keep makes devs the devices of the run, and plans with the memory that each of them has.
func (p *choosing) keep(devs []device.Device) {
	p.Devices, p.Lanes = devs, len(devs)
	p.closers.AddErr(func() error { return closeDevices(devs) })
	for i, dev := range devs {
		use := dev.Usage()
		p.Integrated = p.Integrated || use.Integrated
		if i == 0 || use.Limit > 0 && use.Limit < p.budget {
			p.budget = use.Limit
		}
		p.context = max(p.context, use.Now[accounts.Context])
		if use.Limit > 0 {
			p.LaneMemory = append(p.LaneMemory, use.Limit)
		}
	}
	if len(p.LaneMemory) != len(devs) || len(devs) == 1 {
		p.LaneMemory = nil
	}
}

// DeviceBudget is how much device memory in bytes the plan may use; 0: no limit.
func (in *Inputs) DeviceBudget() int64 {
	if in.Devices != nil {
		return in.budget
	}
	return int64(in.Config.DeviceMemory)
}

// RateSize is the largest number of rows and columns of the matrices that the matrix
// product rate is measured with: enough for a GPU to reach its full rate, and few
// enough for a CPU to be done soon.
func (in *Inputs) RateSize() int {
	switch {
	case in.Config.Device != "cuda":
		return machine.CPURateSize
	case in.emulated():
		return 64 // an emulator's rate means nothing
	}
	return 8192
}

// emulated says whether GPUs are an emulator's.
func (in *Inputs) emulated() bool { return machine.Emulated() || in.Hooks.Symbols != nil }

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
func (in *Inputs) OpenHardware() (*Hardware, error) {
	h := &Hardware{Devs: in.Devices}
	if h.Devs == nil {
		devs, err := in.OpenCPUs(in.threads())
		if err != nil {
			return nil, err
		}
		h.Devs = devs
		h.closers.AddErr(func() error { return closeDevices(devs) })
	}
	h.Pool = parallel.New(in.threads())
	h.closers.Add(h.Pool.Close)
	return h, nil
}
