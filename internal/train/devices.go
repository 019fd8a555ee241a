package train

import (
	"slices"
	"strings"

	"mt/device"
	"mt/internal/accounts"
	"mt/internal/config"
	"mt/internal/machine"
	"mt/plan"
	"mt/plan/rates"
)

// This file opens the devices of a run that has several.

// countDevices settles how many devices a run asks for; 0: as many as there are. Only training
// and evaluation compute on several.
func (j *job) countDevices(o Options) error {
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
func (j *job) countCards(list config.DeviceList, cards int) error {
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
func (j *job) weighDevices(m *rates.Machine) (err error) {
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

// table is what a checkpoint says of which layer is on which device: nothing where devices are
// alike, since no bit depends on it then and the files are those of any number of devices.
func (j *job) table() []int {
	if j.differ || slices.Equal(j.plan.Lane, j.began) {
		return j.plan.Lane
	}
	return nil
}

// checkNumbered refuses numbers of GPUs where the CPU computes.
func (j *job) checkNumbered() error {
	list, err := j.c.DeviceList()
	if err != nil || list.Ordinals == nil || j.oneDevice || j.c.Device != "cpu" {
		return err
	}
	return j.c.Errorf("devices", "devices: GPUs are numbered, and device is cpu: give how many devices the CPU is to be, such as devices: 2")
}

// openGPUs opens the GPUs that the run asks for. The error is one of the configuration where there
// are fewer.
func (j *job) openGPUs(g *machine.GPU) ([]device.Device, error) {
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
func (j *job) gpuInTurn(g *machine.GPU) ([]int, error) {
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
func (j *job) openCPUs(threads int) ([]device.Device, error) {
	return machine.OpenAll(machine.Options{Device: "cpu", Threads: threads, MemoryLimit: j.c.DeviceMemory, Unified: j.unified, LinkLimit: j.slow.Link}, max(1, j.lanes))
}

// The ways of what passes from one device to another.
const (
	directly    = "from device to device, where a slot waits for it"
	partly      = "from device to device between some of them, else through the host"
	throughHost = "through the host"
)

// passing says which way what passes from one device to another goes; empty where there is one, or
// where no device is here to ask.
func (j *job) passing() (string, error) {
	switch {
	case j.lanes <= 1:
		return "", nil
	case !j.c.PeerCopies:
		return throughHost, nil
	case j.profile == nil && j.c.Device == "cpu":
		return directly, nil
	}
	reaches := func(from, to int) (bool, error) { // as the rates say, and no device is asked
		return j.profile.On(from).Link.Peer > 0 && j.profile.On(to).Link.Peer > 0, nil
	}
	n := j.lanes
	if j.profile == nil {
		n = len(j.devs)
		reaches = func(from, to int) (bool, error) { return j.devs[from].Reach(j.devs[to]) }
	}
	ways, pairs := 0, n*(n-1)
	for k := range n * n {
		from, to := k/n, k%n
		if from == to {
			continue
		}
		ok, err := reaches(from, to)
		if err != nil {
			return "", err
		}
		if ok {
			ways++
		}
	}
	switch {
	case pairs == 0:
		return "", nil
	case ways == 0:
		return throughHost, nil
	case ways < pairs:
		return partly, nil
	}
	return directly, nil
}

// usage is what all devices of the run hold together.
func (j *job) usage() device.Usage {
	var sum device.Usage
	for _, d := range j.devs {
		u := d.Usage()
		for p := range accounts.NumPurposes {
			sum.Now[p] += u.Now[p]
			sum.Peak[p] += u.Peak[p]
		}
		sum.Total += u.Total
		sum.Limit += u.Limit
		sum.Capacity += u.Capacity
	}
	return sum
}
