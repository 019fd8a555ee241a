package rates

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"mt/base/human"
)

// disk is the disk of every shipped profile: one PCIe 4.0 NVMe disk, with the rates of datasheets in GB/s.
var disk = Disk{Write: 5, Read: 7}

// Find returns the machine that name stands for. A name is a file written by Save, a known GPU (rtx-4090, h100), or a
// GPU and a host (rtx-4090+ddr5-5600x2). A GPU without a host gets a host that is common for that GPU. Several names,
// separated by commas, stand for several devices of one host, the host of the first name. Errors list the known names.
func Find(name string) (*Machine, error) {
	first, others, several := strings.Cut(name, ",")
	m, err := find(strings.TrimSpace(first))
	for several && err == nil {
		var next *Machine
		first, others, several = strings.Cut(others, ",")
		if _, host, with := strings.Cut(first, "+"); with && !isFile(strings.TrimSpace(first)) {
			return nil, fmt.Errorf("rates: %s: devices of one host, and %s is a second one: name it behind the first device only", name, host)
		}
		if next, err = find(strings.TrimSpace(first)); err == nil {
			if len(next.More) > 0 {
				return nil, fmt.Errorf("rates: %s: %s has several devices: name it first", name, strings.TrimSpace(first))
			}
			m.Name += " and " + next.Device.Name
			m.More = append(m.More, Card{next.Device, next.Link})
		}
	}
	if err == nil && len(m.More) > 0 {
		if err = m.Check(); err != nil {
			err = fmt.Errorf("rates: %s: %w", name, err)
		}
	}
	return m, err
}

// isFile reports whether name means a file, not a known GPU.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() || strings.HasSuffix(name, ".json") || strings.ContainsRune(name, filepath.Separator)
}

// find returns the machine of a single name, without commas: a file, a GPU, or a GPU and a host.
func find(name string) (*Machine, error) {
	if isFile(name) {
		return Load(name)
	}
	gpuName, hostName, with := strings.Cut(name, "+")
	g, err := findGPU(gpuName)
	if err != nil {
		return nil, err
	}
	if !with {
		hostName = g.host
	}
	host, err := ParseHost(strings.ToLower(strings.TrimSpace(hostName)))
	if err != nil {
		return nil, err
	}
	m := &Machine{Name: g.name + "+" + strings.ToLower(hostName), Source: "a profile that mt has; mt doctor --save measures a machine", Host: host, Disk: disk}
	m.Device, m.Link = g.device()
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("rates: %s: %w", name, err)
	}
	return m, nil
}

// GPUs returns the names of the known GPUs.
func GPUs() []string {
	out := make([]string, 0, len(gpus))
	for _, g := range gpus {
		out = append(out, g.name)
	}
	return out
}

// findGPU returns the known GPU with this name, in the spelling of users or of NVML: rtx3090, 3090, NVIDIA GeForce RTX
// 3090.
func findGPU(name string) (*gpu, error) {
	said := plain(name)
	var known []string
	for i := range gpus {
		for _, n := range append([]string{gpus[i].name}, gpus[i].aliases...) {
			if plain(n) == said || plain(n) == "rtx"+said {
				return &gpus[i], nil
			}
			known = append(known, n)
		}
	}
	return nil, fmt.Errorf("rates: no GPU is called %q%s (known: %s). For another give a file, as mt doctor --save FILE writes it there",
		name, human.Suggest(strings.ToLower(name), known), strings.Join(GPUs(), ", "))
}

// plain normalizes the name of a GPU: lower case, without spaces, dashes and the leading brand. Other words stay, so
// that "RTX 3080 Laptop GPU" and "H100 NVL" do not match RTX 3080 and H100, which are other cards.
func plain(name string) string {
	s := strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(name))
	for _, brand := range []string{"nvidia", "geforce", "tesla"} {
		s = strings.TrimPrefix(s, brand)
	}
	return s
}

// Found is a machine as its drivers describe it. A zero field is unknown.
type Found struct {
	GPU       string  // the name from CUDA and NVML
	DeviceGiB float64 // memory of the GPU
	Cores     int     // of the host
	HostGiB   float64 // host memory available to a run
}

// leastMemory and mostMemory bound the ratio between the memory that a GPU has and the memory in the profile with its
// name. Outside, the GPU is another card with the same name: an RTX 3080 has 10 or 12 GiB.
const leastMemory, mostMemory = 0.9, 1.08

// At returns the profile of f's GPU, with the cores and memory size of f's host. The rates of host memory are taken
// from a host that is common for the GPU. If there is no profile, the error says why.
func At(f Found) (*Machine, error) {
	g, err := findGPU(f.GPU)
	if err != nil {
		return nil, err
	}
	if part := f.DeviceGiB / g.memory.value; f.DeviceGiB > 0 && (part < leastMemory || part > mostMemory) {
		return nil, fmt.Errorf("rates: %s has %.4g GiB, the profile %s has %g GiB: a part of one, or another card of that name. mt doctor --save measures this one", f.GPU, f.DeviceGiB, g.name, g.memory.value)
	}
	host := g.host
	if _, fixed := hosts[host]; !fixed {
		if f.Cores > 0 {
			host += fmt.Sprintf("-%dc", f.Cores)
		}
		if f.HostGiB >= 1 {
			host += fmt.Sprintf("-%.0fg", f.HostGiB)
		}
	}
	m, err := find(g.name + "+" + host)
	if err == nil && f.HostGiB > 0 {
		m.Host.Memory = Round(f.HostGiB)
	}
	return m, err
}

// Round rounds x to four significant digits. Rates are less precise than that.
func Round(x float64) float64 {
	if x <= 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(x)))
	return math.Round(x*scale) / scale
}
