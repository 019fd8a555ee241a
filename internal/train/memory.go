package train

import (
	"errors"
	"fmt"
	"time"

	"mt/device"
	"mt/host"
	"mt/internal/accounts"
	"mt/internal/human"
	"mt/plan"
)

// memoryUse is the memory of a line of metrics.jsonl, in bytes: what the run holds by
// purpose, what limits it, and what the machine has.
type memoryUse struct {
	Device         map[string]int64 `json:"device"`
	DeviceLimit    int64            `json:"device_limit,omitempty"`
	DeviceCapacity int64            `json:"device_capacity,omitempty"`
	Host           map[string]int64 `json:"host"`
	HostLimit      int64            `json:"host_limit,omitempty"`
	HostResident   int64            `json:"host_resident,omitempty"`
	HostCapacity   int64            `json:"host_capacity,omitempty"`
	HostAvailable  int64            `json:"host_available,omitempty"`
	HostCached     int64            `json:"host_cached,omitempty"`
	HostNodes      int              `json:"host_nodes,omitempty"`

	hostTotal, deviceTotal int64 // sums of Host and Device
}

// takenMemory puts together what the device holds, what the arenas hold, the host's
// budget in bytes (0: none) and what the system says.
func takenMemory(dev device.Usage, arenas accounts.Used, hostLimit int64, system host.Machine) memoryUse {
	m := memoryUse{Device: map[string]int64{}, DeviceLimit: dev.Limit, DeviceCapacity: dev.Capacity, Host: map[string]int64{}, HostLimit: hostLimit,
		HostResident: system.Resident, HostCapacity: system.Capacity, HostAvailable: system.Available, HostCached: system.Cached, HostNodes: system.Nodes}
	for p := range accounts.NumPurposes {
		switch d, h := dev.Now[p], arenas.Now[p]; {
		case p == accounts.HostStaging && d+h != 0:
			m.Host[p.String()] = d + h
		case p.OfDevice() && d != 0:
			m.Device[p.String()] = d
		case p.OfArena() && h != 0:
			m.Host[p.String()] = h
		}
	}
	m.hostTotal, m.deviceTotal = arenas.Total+dev.Now[accounts.HostStaging], dev.Total
	return m
}

// glance is the memory of the machine as it was a second ago at most: asking takes a
// fifth of a millisecond, which short steps would feel.
type glance struct {
	look  func() host.Machine
	clock func() time.Time
	at    time.Time
	seen  host.Machine
}

func (g *glance) now() host.Machine {
	if t := g.clock(); g.at.IsZero() || t.Sub(g.at) >= time.Second {
		g.at, g.seen = t, g.look()
	}
	return g.seen
}

// room is how much host memory is available.
func (j *job) room() host.Room {
	room := host.AvailableMemory()
	if f := j.hooks.room; f != nil {
		room = f()
	}
	if _, n := j.team.neighbours(); n > 1 {
		room.Bytes, room.By = room.Bytes/int64(n), fmt.Sprintf("%s, shared by %d ranks", room.By, n)
	}
	return room
}

// onePart is the part of the available memory that a run may take where host and device share one memory, in percent.
// The system counts copies of files as available, and drops them when a process touches its memory. A GPU's driver takes
// memory from inside the kernel, which then has less time to drop them. The rest is for that, and for the desktop that
// such machines often show.
const onePart = 90

// budgetOf returns what a run may take of room.
func (j *job) budgetOf(room host.Room) host.Room {
	if j.integrated && room.Known {
		room.Bytes, room.By = room.Bytes/100*onePart, fmt.Sprintf("%d %% of what is available, for host and GPU together: %s", onePart, room.By)
	}
	return room
}

// checkRoom refuses a run that needs more host memory than there is. It does so before
// anything is allocated: arenas are filled one after the other, so the lack could show
// late. what is how the error calls the run or pass.
func (j *job) checkRoom(what string) error {
	t, room := j.plan.Table(), j.room()
	need, key := t.Host, "host_memory"
	if j.c.Device == "cpu" || j.integrated {
		need += t.AllDevices
	}
	if j.c.Device == "cpu" && !j.c.Given(key) {
		key = "device_memory"
	}
	if !room.Known || need <= room.Bytes {
		return nil
	}
	return j.c.Errorf(key, "%s: %s needs %s of this machine's memory, and %s, %s too little: lower %s to what there is, and the plan names what needs less",
		key, what, human.Bytes(need), room, human.Bytes(need-room.Bytes), key)
}

// planError names the key that err is about: the one that set the budget into which the
// run does not fit, or a depth that is wrong.
func (j *job) planError(err error) error {
	var lacking *plan.NotFitting
	var depth *plan.BadDepth
	key := ""
	switch {
	case errors.As(err, &lacking):
		key = lacking.Where + "_memory"
	case errors.As(err, &depth):
		key = depth.Key
	}
	if j.c.Given(key) {
		return j.c.Errorf(key, "plan: %w", err)
	}
	return fmt.Errorf("plan: %w", err)
}
