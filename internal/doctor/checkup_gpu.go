package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"mt/cudart"
)

// driver checks whether an installed GPU is usable.
func driver(s Sources) []Part {
	const name = "GPU"
	c := s.CUDA
	gpus := s.gpus()
	switch {
	case c.Problem == "" && c.Device != "":
		return one(name, OK, c.String())
	case len(gpus) == 0 && !s.exists("proc/driver/nvidia"):
		return one(name, OK, "no NVIDIA GPU here: mt trains on the CPU")
	}
	remedy := []string{}
	for _, l := range c.Libraries {
		if l.Required && l.Path == "" && l.Hint != "" {
			remedy = append(remedy, l.Hint)
		}
	}
	if !s.exists("dev/nvidiactl") && s.inContainer() {
		remedy = append(remedy, "the container was not given the GPU; start it with:", "$ docker run --gpus all …")
	}
	if len(remedy) == 0 {
		remedy = []string{"what the driver sees, and says of it:", "$ nvidia-smi", "$ sudo dmesg | grep -i nvrm", "after an update of the driver:", "$ sudo reboot"}
	}
	return one(name, Broken, c.String(), remedy...)
}

// blas checks whether cuBLASLt, NVIDIA's library for matrix products, is there and computes them.
func blas(s Sources) []Part {
	if s.CUDA.Device == "" || s.CUDA.Emulated {
		return nil
	}
	for _, l := range s.CUDA.Libraries {
		if l.Library != cudart.BlasLt {
			continue
		}
		if l.Path == "" {
			return one("cuBLAS", Slow, "not found: matrix products take mt's own kernels", l.Hint)
		}
		return one("cuBLAS", OK, strings.TrimSpace(l.Version+" "+l.Path))
	}
	return nil
}

// pciDevices is the sysfs folder of PCI devices.
const pciDevices = "sys/bus/pci/devices"

// gpus returns the PCI addresses of NVIDIA's display and 3D controllers, as sysfs names them. Source: pci.ids, vendor
// 10de, classes 0300 and 0302.
func (s Sources) gpus() []string {
	entries, err := fs.ReadDir(s.Root, pciDevices)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		at := path.Join(pciDevices, e.Name())
		class := s.text(at + "/class")
		if s.text(at+"/vendor") == "0x10de" && (strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")) {
			out = append(out, e.Name())
		}
	}
	return out
}

// link is the speed of a PCI Express link in GT/s and its number of lanes; 0: unknown.
type link struct {
	speed float64
	lanes int
}

// speeds are the speeds of the PCI Express generations in GT/s.
var speeds = []float64{2.5, 5, 8, 16, 32, 64}

// generation names the PCI Express generation that has the link's speed, such as 4.0. If none has it, the text gives
// the speed in GT/s.
func (l link) generation() string {
	for i, speed := range speeds {
		if l.speed == speed {
			return fmt.Sprintf("%d.0", i+1)
		}
	}
	return fmt.Sprintf("of %g GT/s", l.speed)
}

func (l link) String() string { return fmt.Sprintf("PCIe %s x%d", l.generation(), l.lanes) }

// linkOf returns the PCI Express link of a device as the kernel reports it. device is the device's folder in sysfs,
// and which is "current" or "max". Source: Documentation/ABI/testing/sysfs-bus-pci.
func (s Sources) linkOf(device, which string) (l link) {
	number, _, _ := strings.Cut(s.text(device+"/"+which+"_link_speed"), " ")
	l.speed, _ = strconv.ParseFloat(number, 64) // "Unknown" parses as 0
	l.lanes, _ = strconv.Atoi(s.text(device + "/" + which + "_link_width"))
	if l.lanes > 32 { // 255 means unknown
		l.lanes = 0
	}
	return l
}

// links checks the PCI Express link of each GPU: its lanes, and the highest speeds of slot and card. An idle link
// lowers its speed but keeps its lanes, so the current speed says nothing. If the kernel shows no devices, as in WSL,
// NVML tells the link of the first GPU.
func links(s Sources) (out []Part) {
	if g := s.CUDA.State; g != nil && !s.CUDA.Emulated && len(s.gpus()) == 0 && g.PCIe[1] > 0 && g.BestPCIe[0] > 0 && g.BestPCIe[0] <= len(speeds) {
		best := link{speeds[g.BestPCIe[0]-1], g.BestPCIe[1]}
		return []Part{linkPart("link", link{lanes: g.PCIe[1]}, best, best)}
	}
	for _, id := range s.gpus() {
		at := path.Join(pciDevices, id)
		now, card := s.linkOf(at, "current"), s.linkOf(at, "max")
		if now.lanes == 0 || card.lanes == 0 || card.speed == 0 {
			continue
		}
		slot := card
		if target, err := fs.ReadLink(s.Root, at); err == nil {
			if above := s.linkOf(path.Dir(path.Join(pciDevices, target)), "max"); above.lanes > 0 && above.speed > 0 {
				slot = above
			}
		}
		out = append(out, linkPart("link of "+id, now, card, slot))
	}
	return out
}

func linkPart(name string, now, card, slot link) Part {
	p := Part{Name: name, State: OK, Found: fmt.Sprintf("x%d, up to %s", now.lanes, link{card.speed, now.lanes})}
	slow := func(found string, remedy ...string) Part {
		return Part{Name: name, State: Slow, Found: found, Remedy: remedy}
	}
	switch {
	case now.lanes < min(card.lanes, slot.lanes):
		return slow(fmt.Sprintf("%d lanes of %d: weights and gradients take %.3g times as long", now.lanes, min(card.lanes, slot.lanes),
			float64(min(card.lanes, slot.lanes))/float64(now.lanes)),
			"the slot may share lanes with another slot or a disk (the board's manual, bifurcation in its setup);",
			"else seat the card again, without a riser cable; what was negotiated:", "$ nvidia-smi -q | grep -A 12 'GPU Link Info'")
	case slot.lanes < card.lanes:
		return slow(fmt.Sprintf("the slot has %d lanes, the card %d", slot.lanes, card.lanes), "put the card into a slot with "+strconv.Itoa(card.lanes)+" lanes from the processor (the board's manual says which)")
	case slot.speed < card.speed:
		return slow(fmt.Sprintf("the slot is PCIe %s, the card PCIe %s", slot.generation(), card.generation()),
			"in the board's setup set the slot's speed to Auto; a riser cable or an older slot may hold it down")
	}
	return p
}

// clocks reports the reasons for which the first GPU runs at reduced clocks, with remedies.
func clocks(s Sources) []Part {
	const name = "GPU clocks"
	g := s.CUDA.State
	if g == nil || s.CUDA.Emulated {
		return nil
	}
	found := fmt.Sprintf("%d of %d MHz, %d °C, %d W", g.ClockMHz, g.MaxMHz, g.Celsius, g.Watts)
	if len(g.SlowedDown) == 0 {
		return one(name, OK, found)
	}
	var remedy []string
	for _, why := range g.SlowedDown {
		remedy = append(remedy, slowdowns[why]...)
	}
	return one(name, Slow, found+"; slowed down by: "+strings.Join(g.SlowedDown, ", "), slices.Compact(remedy)...)
}

// heat is the advice for a GPU whose clocks are reduced because it is too hot.
var heat = []string{"clean the fans, give the case more air, or let the GPU draw less, which costs little speed:", "$ sudo nvidia-smi -pl WATTS"}

// slowdowns has the remedies for each reason in machine.GPUState.SlowedDown.
var slowdowns = map[string][]string{
	"power limit":                     {"the limit may be set lower than the board's own, which is:", "$ nvidia-smi -q -d POWER", "$ sudo nvidia-smi -pl WATTS"},
	"hardware":                        {"the board slows itself: heat, or too little power; each of its power plugs needs a cable of its own"},
	"power brake":                     {"the power supply or the server asked the board to slow down: look at the supply and its cables"},
	"temperature":                     heat,
	"temperature, by hardware":        heat,
	"clocks set by the administrator": {"give the clocks back to the driver:", "$ sudo nvidia-smi -rac", "$ sudo nvidia-smi -rgc"},
}
