package train

import (
	"mt/device"
	"mt/internal/accounts"
	"mt/internal/machine"
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
	case j.oneDevice || o.Forecast.Machine != nil && list.All:
		j.lanes = 1
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
	ordinals := list.Ordinals
	if j.oneDevice || j.lanes == 1 && ordinals == nil {
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
	m := j.profile
	switch {
	case j.lanes <= 1:
		return "", nil
	case !j.c.PeerCopies || m != nil && m.Link.Peer == 0:
		return throughHost, nil
	case m != nil || j.c.Device == "cpu":
		return directly, nil
	}
	ways, pairs := 0, 0
	for _, from := range j.devs {
		for _, to := range j.devs {
			if from == to {
				continue
			}
			ok, err := from.Reach(to)
			if err != nil {
				return "", err
			}
			if pairs++; ok {
				ways++
			}
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
