package machine

import (
	"fmt"
	"strings"

	"mt/cudart"
)

// GPUState is a GPU's state from NVML. Figures that NVML does not give are 0.
type GPUState struct {
	Driver     string   `json:"driver"` // version, such as 550.54.15
	ClockMHz   int      `json:"clock_mhz,omitempty"`
	MaxMHz     int      `json:"max_clock_mhz,omitempty"`
	MemoryMHz  int      `json:"memory_clock_mhz,omitempty"`
	PCIe       [2]int   `json:"pcie_generation_lanes"` // current; an idle link is slower
	BestPCIe   [2]int   `json:"max_pcie_generation_lanes"`
	Celsius    int      `json:"celsius,omitempty"`
	Watts      int      `json:"watts,omitempty"`
	SlowedDown []string `json:"slowed_down,omitempty"` // why clocks are low
}

// slowdowns lists the reasons for low clocks that matter to a user, with their texts.
var slowdowns = []struct {
	reason cudart.Throttle
	text   string
}{
	{cudart.ThrottlePowerCap, "power limit"}, {cudart.ThrottleHardware, "hardware"}, {cudart.ThrottleThermalSoftware, "temperature"},
	{cudart.ThrottleThermalHardware, "temperature, by hardware"}, {cudart.ThrottlePowerBrake, "power brake"},
	{cudart.ThrottleAppClocks, "clocks set by the administrator"},
}

// gpuState asks NVML about the GPU with that ordinal. It returns nil if NVML is missing or does not know the GPU.
func gpuState(c *cudart.CUDA, ordinal int) *GPUState {
	n := c.NVML()
	if n == nil || n.Init() != nil {
		return nil
	}
	defer n.Shutdown()
	id, err := c.PCIBusID(ordinal)
	if err != nil {
		return nil
	}
	g, err := n.ByPCI(id)
	if err != nil {
		return nil
	}
	s := &GPUState{}
	// Some GPUs, such as virtual ones, lack some figures. Those stay 0.
	s.Driver, _ = n.DriverVersion()
	s.ClockMHz, _ = n.ClockMHz(g, cudart.ClockSM)
	s.MaxMHz, _ = n.MaxClockMHz(g, cudart.ClockSM)
	s.MemoryMHz, _ = n.ClockMHz(g, cudart.ClockMemory)
	s.PCIe[0], s.PCIe[1], _ = n.PCIe(g)
	s.BestPCIe[0], s.BestPCIe[1], _ = n.MaxPCIe(g)
	s.Celsius, _ = n.Celsius(g)
	milliwatts, _ := n.PowerMilliwatts(g)
	s.Watts = milliwatts / 1000
	why, _ := n.Throttled(g)
	for _, d := range slowdowns {
		if why&d.reason != 0 {
			s.SlowedDown = append(s.SlowedDown, d.text)
		}
	}
	return s
}

// String describes s in one line.
func (s *GPUState) String() string {
	out := fmt.Sprintf("driver %s, PCIe %d.0 x%d of %d.0 x%d, %d of %d MHz, %d °C, %d W", s.Driver, s.PCIe[0], s.PCIe[1], s.BestPCIe[0],
		s.BestPCIe[1], s.ClockMHz, s.MaxMHz, s.Celsius, s.Watts)
	if len(s.SlowedDown) > 0 {
		out += ", slowed down: " + strings.Join(s.SlowedDown, ", ")
	}
	return out
}

// Slowdowns lists the values that GPUState.SlowedDown can have.
func Slowdowns() (out []string) {
	for _, d := range slowdowns {
		out = append(out, d.text)
	}
	return out
}
