package rates

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"mt/internal/near"
)

// disk is one NVMe disk of PCIe 4.0, as datasheets have it.
var disk = Disk{Write: 5, Read: 7}

// Find is the machine that name stands for: a file as Save writes it, a GPU that mt knows
// (rtx-4090, h100), or a GPU and a host (rtx-4090+ddr5-5600x2). A GPU without a host comes with
// one that it is often in. Several names with commas between them are devices of one host, that
// of the first. Errors say which names there are.
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

// isFile says that name is meant as a file.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() || strings.HasSuffix(name, ".json") || strings.ContainsRune(name, filepath.Separator)
}

// find is Find of one name.
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

// GPUs are the names of the GPUs that mt knows.
func GPUs() []string {
	out := make([]string, 0, len(gpus))
	for _, g := range gpus {
		out = append(out, g.name)
	}
	return out
}

// findGPU takes names as users and NVML write them: rtx3090, 3090, NVIDIA GeForce RTX 3090.
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
		name, near.Suggest(strings.ToLower(name), known), strings.Join(GPUs(), ", "))
}

// plain is a name without what people write in different ways.
func plain(name string) string {
	s := strings.ToLower(name)
	for _, word := range []string{"nvidia", "geforce", "tesla"} {
		s = strings.ReplaceAll(s, word, "")
	}
	return strings.NewReplacer(" ", "", "-", "", "_", "").Replace(s)
}

// Round keeps four digits of x, which is more than a rate is worth.
func Round(x float64) float64 {
	if x <= 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(x)))
	return math.Round(x*scale) / scale
}
