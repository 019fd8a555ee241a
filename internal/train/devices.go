package train

import (
	"runtime"
	"slices"
	"strings"

	"mt/device"
	"mt/device/cuda"
	"mt/host"
	"mt/host/optim"
	"mt/internal/config"
	"mt/internal/machine"
	"mt/plan"
	"mt/plan/rates"
)

// This file opens the devices of a run that has several.

// countDevices settles how many devices a run asks for; 0: as many as there are. Only training
// and evaluation compute on several.
func (j *opening) countDevices(o Options) error {
	list, err := j.c.DeviceList()
	j.lanes = list.Count
	switch {
	case err != nil:
		return err
	case j.oneDevice:
		j.lanes = 1
	case o.Forecast.Machine != nil:
		return j.countCards(list, 1+len(o.Forecast.Machine.More))
	}
	return nil
}

// countCards is countDevices for a machine that is named with so many devices.
func (j *opening) countCards(list config.DeviceList, cards int) error {
	if list.All || !j.c.Given("devices") {
		j.lanes = cards
	}
	if cards > 1 && j.lanes > cards {
		return j.c.Errorf("devices", "devices: %d devices, and --gpu names %d: name each of them, or one for all", j.lanes, cards)
	}
	return nil
}

// weighDevices finds out what each of several devices reaches, where they differ: as m says, the
// key device_rates, or the profiles that mt has of GPUs of their names.
func (j *opening) weighDevices(m *rates.Machine) (err error) {
	var names []string
	for _, d := range j.devs {
		names = append(names, strings.ReplaceAll(d.Name(), ",", " "))
	}
	distinct := len(slices.Compact(slices.Sorted(slices.Values(names))))
	if j.differ = distinct > 1; j.differ {
		j.note("the devices differ (%s): results are, to the bit, those of the table of layers, which the run keeps as long as it has as many devices", strings.Join(names, ", "))
	}
	said := "device_rates"
	if m != nil {
		said = "--gpu"
	}
	switch {
	case m != nil && j.c.DeviceRates != "auto":
		return j.c.Errorf("device_rates", "device_rates: --gpu names the rates to predict with: leave out one of the two, or give --device-rates auto")
	case j.lanes <= 1:
		return nil
	case m != nil:
	case j.c.DeviceRates != "auto":
		if m, err = rates.Find(j.c.DeviceRates); err != nil {
			return j.c.Errorf("device_rates", "device_rates: %w", err)
		}
		if n := 1 + len(m.More); n > 1 && n != j.lanes {
			return j.c.Errorf("device_rates", "device_rates: rates of %d devices, and the run has %d: give those of each", n, j.lanes)
		}
	case distinct > 1:
		if m, err = rates.Find(strings.Join(names, ",")); err != nil {
			j.note("layers are shared out as if all devices were as fast: %v; device_rates says how fast each is", err)
			return nil
		}
	}
	if m == nil || len(m.More) == 0 {
		return nil
	}
	j.differ = true
	for lane := range j.lanes {
		card := m.On(lane)
		flops, link := card.Pace(j.c.ComputeDType)
		if flops <= 0 || link <= 0 {
			return j.c.Errorf("device_rates", "%s: no rate of products in %s, or of the link, for %s", said, j.c.ComputeDType, card.Device.Name)
		}
		j.paces = append(j.paces, plan.Pace{FLOPs: flops, Link: link})
	}
	return nil
}

// checkNumbered refuses numbers of GPUs where the CPU computes.
func (j *opening) checkNumbered() error {
	list, err := j.c.DeviceList()
	if err != nil || list.Ordinals == nil || j.oneDevice || j.c.Device != "cpu" {
		return err
	}
	return j.c.Errorf("devices", "devices: GPUs are numbered, and device is cpu: give how many devices the CPU is to be, such as devices: 2")
}

// openGPUs opens the GPUs that the run asks for. The error is one of the configuration where there
// are fewer.
func (j *opening) openGPUs(g *machine.GPU) ([]device.Device, error) {
	list, err := j.c.DeviceList()
	if err != nil {
		return nil, err
	}
	if err := j.timeProducts(g); err != nil {
		return nil, err
	}
	ordinals := list.Ordinals
	if _, ranks := j.team.neighbours(); ranks > 1 && !j.c.Given("devices") {
		if ordinals, err = j.gpuInTurn(g); err != nil {
			return nil, err
		}
	} else if j.oneDevice || j.lanes == 1 && ordinals == nil {
		ordinals = []int{machine.First}
	} else if has, err := g.Count(); err != nil {
		return nil, err
	} else {
		for n := range j.lanes {
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
				return nil, j.c.Errorf("devices", "devices: GPU %d is asked for, counted from 0, and there are %d; CUDA_VISIBLE_DEVICES hides others", n, has)
			}
		}
	}
	return g.OpenAll(ordinals, j.c.DeviceMemory)
}

// gpuInTurn is the GPU that this rank takes where several are on its host: the next one of those
// that are there.
func (j *opening) gpuInTurn(g *machine.GPU) ([]int, error) {
	has, err := g.Count()
	if err != nil {
		return nil, err
	}
	index, ranks := j.team.neighbours()
	if ranks > has && j.c.DeviceMemory == 0 {
		return nil, j.c.Errorf("device_memory", "device_memory: %d ranks are on this host and share %d GPU(s): give how much of one each may take, or start fewer ranks", ranks, has)
	}
	return []int{index % max(has, 1)}, nil
}

// openCPUs makes the CPU as many devices as the run asks for, with that many threads each (0: a
// share of the cores).
func (j *Inputs) openCPUs(threads int) ([]device.Device, error) {
	return machine.OpenAll(machine.Options{Device: "cpu", Threads: threads, MemoryLimit: j.c.DeviceMemory, Unified: j.unified, LinkLimit: j.slow.Link}, max(1, j.lanes))
}

// timeProducts has the GPUs choose algorithms by their times, where the configuration says so.
func (j *opening) timeProducts(g *machine.GPU) error {
	if j.c.MatMul != timedProducts {
		return nil
	}
	if n := j.team.Size(); n > 1 {
		return j.c.Errorf("matmul", "matmul: timed: each of %d ranks would choose by its own times, and no record of a run has them all; leave matmul out", n)
	}
	dir := machine.TimedDir(j.c.CacheDir)
	g.TimeProducts(dir)
	kept := "kept in " + dir
	if dir == "" {
		kept = "not kept for the next run, as there is no cache folder: set cache_dir"
	}
	j.note("matmul: timed: when a shape of matrix products first comes up it is computed some thirty times, by up to eight algorithms of cuBLASLt; the fastest is %s", kept)
	return nil
}

// timedProducts is the value of matmul with which algorithms are chosen by their times.
const timedProducts = "timed"

// checkTimed refuses to choose by times on devices that differ: one record cannot have the choices of
// several. It notes where the key has no effect.
func (j *opening) checkTimed() error {
	names := map[string]bool{}
	for _, d := range j.devs {
		names[d.Name()] = true
	}
	switch {
	case j.c.MatMul != timedProducts:
	case j.c.Device == "cpu":
		j.note("matmul: timed has no effect: it chooses among cuBLASLt's algorithms, and the CPU computes")
	case len(names) > 1:
		return j.c.Errorf("matmul", "matmul: timed: the devices differ, and the run's record of algorithms is of one kind of device; leave matmul out")
	}
	return nil
}

// threads is how many threads of the host this rank may use; 0: all.
func (j *Inputs) threads() int {
	_, n := j.team.neighbours()
	switch {
	case n == 1:
		return j.c.Threads
	case j.c.Threads > 0:
		return max(1, j.c.Threads/n)
	}
	return max(1, runtime.GOMAXPROCS(0)/n)
}

// share is this rank's part of bytes that the ranks of its host have together.
func (j *Inputs) share(bytes int64) int64 {
	_, n := j.team.neighbours()
	return bytes / int64(n)
}

// takeProfile plans for machine m, which need not be here.
func (j *opening) takeProfile(m *rates.Machine) error {
	c, gib := j.c, float64(1<<30)
	j.profile, j.integrated = m, m.Device.Integrated
	if kind := m.Device.Kind; c.Given("device") && c.Device != "auto" && c.Device != kind {
		return c.Errorf("device", "device: %s, but the rates are those of a %s device: leave device out", c.Device, kind)
	}
	c.Device = m.Device.Kind
	if c.Device == "cuda" {
		has := config.Bytes(m.Device.Memory * gib)
		for lane := range max(1, j.lanes) {
			mem := config.Bytes(m.On(lane).Device.Memory * gib)
			has = min(has, mem)
			j.memory = append(j.memory, int64(mem))
		}
		if c.DeviceMemory == 0 {
			c.DeviceMemory = has
		}
		if c.DeviceMemory > has {
			return c.Errorf("device_memory", "device_memory: %s, but %s has %s", c.DeviceMemory, m.Name, has)
		}
		if c.DeviceMemory < has || len(m.More) == 0 {
			j.memory = nil // each gives as much
		}
		j.context = cuda.AssumedContext
	}
	if c.HostMemory == 0 {
		c.HostMemory = config.Bytes(budgetOf(j.integrated, host.Room{Known: true, Bytes: int64(m.Host.Memory * gib)}).Bytes)
	}
	return nil
}

// optimizer is how weights are updated.
func (j *Inputs) optimizer() optim.Optimizer { return j.slow.Optimizer(optimizerOf(j.c)) }

// bf16Master says whether what streams of a matrix is its master weight.
func (j *Inputs) bf16Master() bool { return j.c.MasterDType == "bf16" && j.act == device.BF16 }

// checkMaster refuses master weights in bf16 where nothing streams in bf16.
func (j *opening) checkMaster() error {
	if j.c.MasterDType != "bf16" || j.act == device.BF16 {
		return nil
	}
	return j.c.Errorf("master_dtype", "master_dtype: bf16 keeps of weights what streams in bf16, and compute_dtype is %s, in which fp32 weights stream: set compute_dtype: bf16, or leave master_dtype out",
		j.c.ComputeDType)
}

// contextBytes is the device memory that is taken before anything is allocated, and by the streams that
// compute beside the first: that of the optimizer's matrices.
func (j *Inputs) contextBytes() int64 {
	if j.context > 0 && nsSteps(j.c) > 0 {
		return j.context + cuda.StreamBytes
	}
	return j.context
}
