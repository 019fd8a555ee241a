package open

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/cudart"
	"mt/device"
	"mt/device/cuda"
	"mt/host"
	"mt/host/optim"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/report"
	"mt/internal/run/settings"
	"mt/plan"
	"mt/plan/rates"
)

// countDevices sets the number of devices (p.Lanes) from the key devices; 0 means all that the machine has. Only
// training and evaluation use several.
func (p *choosing) countDevices(o settings.Options) error {
	list, err := p.Config.DeviceList()
	p.Lanes = list.Count
	switch {
	case err != nil:
		return err
	case p.oneDevice:
		p.Lanes = 1
	case o.Forecast.Machine != nil:
		return p.countCards(list, 1+len(o.Forecast.Machine.More))
	}
	return nil
}

// countCards is countDevices for a plan on the machine that --gpu names. list is the parsed key devices, and cards is
// how many devices the machine has.
func (p *choosing) countCards(list config.DeviceList, cards int) error {
	if list.All || !p.Config.Given("devices") {
		p.Lanes = cards
	}
	if cards > 1 && p.Lanes > cards {
		return p.Config.Errorf("devices", "devices: %d devices, and --gpu names %d: name each of them, or one for all", p.Lanes, cards)
	}
	return nil
}

// weighDevices sets the rates of the devices if the devices differ, so that faster ones get more work. The rates come
// from m, from the key device_rates, or from mt's profiles of the GPUs.
func (p *choosing) weighDevices(m *rates.Machine) (err error) {
	var names []string
	for _, d := range p.Devices {
		names = append(names, strings.ReplaceAll(d.Name(), ",", " "))
	}
	distinct := len(slices.Compact(slices.Sorted(slices.Values(names))))
	if p.DevicesDiffer = distinct > 1; p.DevicesDiffer {
		p.note("the devices differ (%s): results are, to the bit, those of the table of layers, which the run keeps as long as it has as many devices", strings.Join(names, ", "))
	}
	said := "device_rates"
	if m != nil {
		said = "--gpu"
	}
	switch {
	case m != nil && p.Config.DeviceRates != "auto":
		return p.Config.Errorf("device_rates", "device_rates: --gpu names the rates to predict with: leave out one of the two, or give --device-rates auto")
	case m != nil:
	case p.Lanes <= 1:
		m = p.ratesOfOne(names)
	case p.Config.DeviceRates != "auto":
		if m, err = rates.Find(p.Config.DeviceRates); err != nil {
			return p.Config.Errorf("device_rates", "device_rates: %w", err)
		}
		if n := 1 + len(m.More); n > 1 && n != p.Lanes {
			return p.Config.Errorf("device_rates", "device_rates: rates of %d devices, and the run has %d: give those of each", n, p.Lanes)
		}
	case distinct > 1:
		if m, err = rates.Find(strings.Join(names, ",")); err != nil {
			p.note("layers are shared out as if all devices were as fast: %v; device_rates says how fast each is", err)
			return nil
		}
	}
	if m == nil || len(m.More) == 0 && p.Lanes > 1 {
		return nil
	}
	p.DevicesDiffer = p.Lanes > 1
	for lane := range p.Lanes {
		card := m.On(lane)
		flops, link := card.Pace(p.Config.ComputeDType)
		switch {
		case flops > 0 && link > 0:
		case p.Lanes == 1:
			return nil
		default:
			return p.Config.Errorf("device_rates", "%s: no rate of products in %s, or of the link, for %s", said, p.Config.ComputeDType, card.Device.Name)
		}
		p.Paces = append(p.Paces, plan.Pace{FLOPs: flops, Link: link})
	}
	return nil
}

// ratesOfOne returns the rates of a run's only device. The key device_rates counts if it names one device, otherwise mt's
// profile of the device. nil: mt has none, and the plan takes the rates of a common device. names has the device's name.
func (p *choosing) ratesOfOne(names []string) *rates.Machine {
	if m, err := rates.Find(p.Config.DeviceRates); err == nil && len(m.More) == 0 {
		return m
	}
	m, err := rates.Find(strings.Join(names, ","))
	if err != nil {
		return nil
	}
	return m
}

// checkNumbered returns an error if devices lists GPU numbers and the device is the CPU.
func (p *choosing) checkNumbered() error {
	list, err := p.Config.DeviceList()
	if err != nil || list.Ordinals == nil || p.oneDevice || p.Config.Device != "cpu" {
		return err
	}
	return p.Config.Errorf("devices", "devices: GPUs are numbered, and device is cpu: give how many devices the CPU is to be, such as devices: 2")
}

// openGPUs opens the GPUs that the run asks for. If there are fewer, the error is a UsageError.
func (p *choosing) openGPUs(g *machine.GPU) ([]device.Device, error) {
	list, err := p.Config.DeviceList()
	if err != nil {
		return nil, err
	}
	if err := p.timeProducts(g); err != nil {
		return nil, err
	}
	ordinals := list.Ordinals
	if _, ranks := p.Ranks.Neighbours(); ranks > 1 && !p.Config.Given("devices") {
		if ordinals, err = p.gpuInTurn(g); err != nil {
			return nil, err
		}
	} else if p.oneDevice || p.Lanes == 1 && ordinals == nil {
		ordinals = []int{machine.First}
	} else if has, err := g.Count(); err != nil {
		return nil, err
	} else {
		for n := range p.Lanes {
			if list.Ordinals == nil {
				ordinals = append(ordinals, n)
			}
		}
		for n := range has {
			if list.All {
				ordinals = append(ordinals, n)
			}
		}
		for _, n := range ordinals {
			if n >= has {
				return nil, p.Config.Errorf("devices", "devices: GPU %d is asked for, counted from 0, and there are %d; CUDA_VISIBLE_DEVICES hides others", n, has)
			}
		}
	}
	return g.OpenAll(ordinals, p.Config.DeviceMemory)
}

// gpuInTurn returns the ordinal of this rank's GPU when several ranks share a host. The first rank of the host takes
// the first GPU, and each further rank the next.
func (p *choosing) gpuInTurn(g *machine.GPU) ([]int, error) {
	has, err := g.Count()
	if err != nil {
		return nil, err
	}
	index, ranks := p.Ranks.Neighbours()
	if ranks > has && p.Config.DeviceMemory == 0 {
		return nil, p.Config.Errorf("device_memory", "device_memory: %d ranks are on this host and share %d GPU(s): give how much of one each may take, or start fewer ranks", ranks, has)
	}
	return []int{index % max(has, 1)}, nil
}

// OpenCPUs opens the CPU as many times as the run asks for devices. Each such device gets the given number of threads;
// 0 means an equal share of the cores.
func (in *Inputs) OpenCPUs(threads int) ([]device.Device, error) {
	return machine.OpenAll(machine.Options{Device: "cpu", Threads: threads, MemoryLimit: in.Config.DeviceMemory, Unified: in.Unified, LinkLimit: in.Throttle.Link}, max(1, in.Lanes))
}

// timeProducts makes the GPUs choose matrix product algorithms by timing, if the key matmul is timed.
func (p *choosing) timeProducts(g *machine.GPU) error {
	if p.Config.MatMul != timedProducts {
		return nil
	}
	if n := p.Ranks.Size(); n > 1 {
		return p.Config.Errorf("matmul", "matmul: timed: each of %d ranks would choose by its own times, and no record of a run has them all; leave matmul out", n)
	}
	dir := machine.TimedDir(p.Config.CacheDir)
	g.TimeProducts(dir)
	kept := "kept in " + dir
	if dir == "" {
		kept = "not kept for the next run, as there is no cache folder: set cache_dir"
	}
	p.note("matmul: timed: when a shape of matrix products first comes up it is computed some thirty times, by up to eight algorithms of cuBLASLt; the fastest is %s", kept)
	return nil
}

// timedProducts is the value of matmul for algorithms chosen by timing.
const timedProducts = "timed"

// checkTimed rejects matmul: timed on devices of different kinds, because the run records the algorithms of one kind
// only. It adds a note if the key has no effect.
func (p *choosing) checkTimed() error {
	names := map[string]bool{}
	for _, d := range p.Devices {
		names[d.Name()] = true
	}
	switch {
	case p.Config.MatMul != timedProducts:
	case p.Config.Device == "cpu":
		p.note("matmul: timed has no effect: it chooses among cuBLASLt's algorithms, and the CPU computes")
	case len(names) > 1:
		return p.Config.Errorf("matmul", "matmul: timed: the devices differ, and the run's record of algorithms is of one kind of device; leave matmul out")
	}
	return nil
}

// threads returns the host threads for this rank; 0: all.
func (in *Inputs) threads() int {
	_, n := in.Ranks.Neighbours()
	switch {
	case n == 1:
		return in.Config.Threads
	case in.Config.Threads > 0:
		return max(1, in.Config.Threads/n)
	}
	return max(1, runtime.GOMAXPROCS(0)/n)
}

// Share returns this rank's part of an amount of bytes that the ranks on one host divide evenly.
func (in *Inputs) Share(bytes int64) int64 {
	_, n := in.Ranks.Neighbours()
	return bytes / int64(n)
}

// takeProfile makes the plan use the profile m of a machine, which the user named with --gpu,
// instead of this machine.
func (p *choosing) takeProfile(m *rates.Machine) error {
	c, gib := p.Config, float64(1<<30)
	p.Profile, p.Integrated = m, m.Device.Integrated
	if kind := m.Device.Kind; c.Given("device") && c.Device != "auto" && c.Device != kind {
		return c.Errorf("device", "device: %s, but the rates are those of a %s device: leave device out", c.Device, kind)
	}
	c.Device = m.Device.Kind
	if c.Device == "cuda" {
		has := config.Bytes(m.Device.Memory * gib)
		for lane := range max(1, p.Lanes) {
			mem := config.Bytes(m.On(lane).Device.Memory * gib)
			has = min(has, mem)
			p.LaneMemory = append(p.LaneMemory, int64(mem))
		}
		if c.DeviceMemory == 0 {
			c.DeviceMemory = has
		}
		if c.DeviceMemory > has {
			return c.Errorf("device_memory", "device_memory: %s, but %s has %s", c.DeviceMemory, m.Name, has)
		}
		if c.DeviceMemory < has || len(m.More) == 0 {
			p.LaneMemory = nil // all devices have equal budgets
		}
		p.context = cuda.AssumedContext
	}
	if c.HostMemory == 0 {
		c.HostMemory = config.Bytes(BudgetOf(p.Integrated, host.Room{Known: true, Bytes: int64(m.Host.Memory * gib)}).Bytes)
	}
	return nil
}

// Optimizer returns the run's optimizer. If MT_THROTTLE limits the rate of updates (settings.Throttle), its updates
// take longer.
func (in *Inputs) Optimizer() optim.Optimizer {
	return in.Throttle.Optimizer(settings.Optimizer(in.Config))
}

// BF16Master reports whether the run keeps no lower halves, so that the bf16 weights that stream to the device are the
// master weights.
func (in *Inputs) BF16Master() bool { return in.Config.MasterDType == "bf16" && in.Act == device.BF16 }

// checkMaster returns an error for master_dtype: bf16 if the compute dtype is fp32, since the weights that stream are
// then fp32.
func (p *opening) checkMaster() error {
	if p.Config.MasterDType != "bf16" || p.Act == device.BF16 {
		return nil
	}
	return p.Config.Errorf("master_dtype", "master_dtype: bf16 keeps of weights what streams in bf16, and compute_dtype is %s, in which fp32 weights stream: set compute_dtype: bf16, or leave master_dtype out",
		p.Config.ComputeDType)
}

// ContextBytes returns the device memory in bytes that is in use before mt allocates anything. With Muon it adds the
// memory of the extra stream that orthogonalizes matrices.
func (in *Inputs) ContextBytes() int64 {
	if in.context > 0 && settings.NSSteps(in.Config) > 0 {
		return in.context + cuda.StreamBytes
	}
	return in.context
}

// choosing is an opening while the devices of the run are determined.
type choosing struct {
	*opening
	oneDevice bool // the run uses one device, whatever the key devices says
}

// resolveDevice resolves device, compute_dtype and binding. It opens GPUs, since the plan includes the memory of
// their contexts.
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

// chooseDevice resolves device: auto. It takes a working GPU, otherwise the CPU with a note that gives the reason. It
// takes an emulator only for device: cuda. A plan from the configuration alone (Asks.Sketch) with device_memory is for
// a GPU, even on a machine without a GPU.
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

// findGPU looks for a GPU. Its devices report pinning and work that does not end on o.Stderr.
func (p *choosing) findGPU(o settings.Options) machine.GPU {
	g := machine.FindGPU(p.Hooks.Symbols)
	show := report.Reading(o)
	g.TellPinning(func(done, total int64) { show(done, total, report.Pinning) })
	g.TellHang(func(text string) { report.ShowHang(o, text) })
	return g
}

// takeGPU resolves device: cuda. It fails if no GPU is usable, unless only a plan is wanted and device_memory gives
// the GPU's size.
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

// planOnPaper prepares the plan for a GPU that this machine does not have, with device_memory bytes. `why` says why
// there is no GPU; the note to the user begins with it.
func (p *choosing) planOnPaper(why string) {
	p.context = cuda.AssumedContext
	p.note("%s: the plan is for one of %s, of which %s are taken to go to its context; device: cpu plans for this machine's CPU",
		why, p.Config.DeviceMemory, config.Bytes(p.context))
}

// keep makes devs the devices of the run, to be closed with it. The plan's budget of device memory is then their
// memory.
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

// DeviceBudget returns the plan's limit of device memory in bytes; 0: no limit.
func (in *Inputs) DeviceBudget() int64 {
	if in.Devices != nil {
		return in.budget
	}
	return int64(in.Config.DeviceMemory)
}

// RateSize returns how many rows and columns matrices have at most when the rate of matrix products is measured. The
// size is large enough for a GPU's full rate and small enough for a CPU to finish soon.
func (in *Inputs) RateSize() int {
	switch {
	case in.Config.Device != "cuda":
		return machine.CPURateSize
	case in.emulated():
		return 64 // an emulator's rate means nothing
	}
	return 8192
}

// emulated reports whether GPUs are emulated.
func (in *Inputs) emulated() bool { return machine.Emulated() || in.Hooks.Symbols != nil }

// closeDevices closes devs.
func closeDevices(devs []device.Device) error {
	if err := machine.CloseAll(devs); err != nil {
		return fmt.Errorf("close the device: %w", err)
	}
	return nil
}

// Hardware holds the devices and threads of a run.
type Hardware struct {
	Devs    []device.Device // by lane
	Pool    *parallel.Pool  // the host's threads
	closers Closers
}

// Close closes the devices and the pool that OpenHardware opened.
func (h *Hardware) Close() error { return h.closers.Close() }

// OpenHardware opens CPU devices unless the run has GPUs, and starts the host's worker pool.
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

// Room returns the available host memory, divided by the number of ranks on this host.
func (in *Inputs) Room() host.Room {
	room := host.AvailableMemory()
	if f := in.Hooks.Room; f != nil {
		room = f()
	}
	if _, n := in.Ranks.Neighbours(); n > 1 {
		room.Bytes, room.By = room.Bytes/int64(n), fmt.Sprintf("%s, shared by %d ranks", room.By, n)
	}
	return room
}

// onePart is the percentage of available memory that a run may take if host and device share one memory. The rest is
// for the driver and for the desktop. The system counts cached file pages as available, since it can drop them when a
// process needs memory. A GPU's driver allocates inside the kernel, where fewer pages can be dropped in time.
const onePart = 90

// BudgetOf returns the part of room that a run may take: onePart percent if integrated is true, otherwise all of it.
func BudgetOf(integrated bool, room host.Room) host.Room {
	if integrated && room.Known {
		room.Bytes, room.By = room.Bytes/100*onePart, fmt.Sprintf("%d %% of what is available, for host and GPU together: %s", onePart, room.By)
	}
	return room
}

// NodeNotes describes how memory is spread over the NUMA nodes, and which of mt's requests the system has refused. It
// returns nil if n is nil: the host has one node.
func NodeNotes(n *host.Nodes) []string {
	if n == nil {
		return nil
	}
	notes := []string{fmt.Sprintf("each layer is laid out over %s; threads update first what lies at theirs", n)}
	if refused := n.Note(); refused != "" {
		notes = append(notes, refused)
	}
	return notes
}
