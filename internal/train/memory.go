package train

import (
	"time"

	"mt/device"
	"mt/host"
	"mt/internal/accounts"
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
