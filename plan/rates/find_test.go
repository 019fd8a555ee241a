package rates

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestShippedProfiles: each profile passes Check, reads back from a file, has a source for every
// figure, and no rate above the datasheet's peak.
func TestShippedProfiles(t *testing.T) {
	peaks := map[string][3]float64{ // bf16 and fp32 TFLOP/s, GB/s
		"rtx-3080": {59.5, 29.8, 760}, "rtx-3090": {71.2, 35.6, 936}, "rtx-4090": {165.2, 82.6, 1008}, "rtx-5090": {209.5, 104.8, 1792},
		"a100-pcie-40gb": {312, 19.5, 1555}, "a100-pcie-80gb": {312, 19.5, 1935}, "a100-sxm-40gb": {312, 19.5, 1555}, "a100-sxm-80gb": {312, 19.5, 2039},
		"l40s": {362, 91.6, 864}, "h100-pcie": {756, 51, 2000}, "h100-sxm": {989, 67, 3350}, "h200": {989, 67, 4800}, "gh200": {989, 67, 4000},
		"b200": {2250, 80, 8000}, "gb10": {125, 31, 273},
	}
	for _, name := range GPUs() {
		m, err := Find(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		peak, listed := peaks[name]
		d := m.Device
		for i, reached := range []float64{d.Products["bf16"][0].Rate, d.Products["fp32"][0].Rate, d.Bandwidth} {
			if part := reached / peak[i]; !listed || part < 0.65 || part > 0.95 {
				t.Errorf("%s: figure %d is %g, and the datasheet says %g", name, i, reached, peak[i])
			}
		}
		for dtype, all := range d.Attention {
			for _, a := range all {
				if most := d.Products[dtype][0].Rate; a.Forward > most || a.Backward > a.Forward {
					t.Errorf("%s: %s attention %+v, and products reach %g", name, dtype, a, most)
				}
			}
		}
		checkSources(t, name, d.Sources, "memory_gib", "memory_gb_per_s", "launch_us", "enqueue_us", "products.bf16", "products.fp32", "attention.bf16", "attention.fp32")
		checkSources(t, name, m.Link.Sources, "h2d_gb_per_s", "d2h_gb_per_s", "both_gb_per_s", "latency_us", "pin_gb_per_s", "peer_gb_per_s")
		checkSources(t, name, m.Host.Sources, "memory_gb_per_s", "update", "updates", "norm", "gather", "cores", "memory_gib", "pack_s_per_mtoken", "message_us")
		file := filepath.Join(t.TempDir(), "m.json")
		if err := m.Save(file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		back, err := Find(file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		one, _ := json.Marshal(m)
		two, _ := json.Marshal(back)
		if string(one) != string(two) {
			t.Errorf("%s: a file of it gives\n%s\nnot\n%s", name, two, one)
		}
	}
}

// checkSources fails unless each figure has a source, and each source belongs to a figure.
func checkSources(t *testing.T, name string, sources map[string]string, figures ...string) {
	t.Helper()
	for _, f := range figures {
		if sources[f] == "" {
			t.Errorf("%s: %s has no source", name, f)
		}
	}
	for f := range sources {
		if !slices.Contains(figures, f) {
			t.Errorf("%s: a source for %s, which is no figure", name, f)
		}
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"3090": "rtx-3090+ddr4-3200x2", "RTX 3090": "rtx-3090+ddr4-3200x2", "rtx3090": "rtx-3090+ddr4-3200x2",
		"NVIDIA GeForce RTX 4090": "rtx-4090+ddr5-5600x2", "NVIDIA H100 80GB HBM3": "h100-sxm+ddr5-4800x8", "h100": "h100-sxm+ddr5-4800x8",
		"a100": "a100-sxm-80gb+ddr4-3200x8", "A100_PCIe": "a100-pcie-80gb+ddr4-3200x8", "NVIDIA GH200 480GB": "gh200+grace",
		"h200+DDR5-5600x24-96c-2048g": "h200+ddr5-5600x24-96c-2048g", "DGX Spark": "gb10+gb10",
	} {
		m, err := Find(name)
		if err != nil || m.Name != want {
			t.Errorf("%s: %v, %v; want %s", name, m, err, want)
		}
	}
	for name, want := range map[string]string{
		"rtx-4091":            `no GPU is called "rtx-4091"; did you mean "rtx-4090"? (known: rtx-3080, rtx-3090,`,
		"":                    `no GPU is called "" (known: `,
		"h100+":               `no host is called "": a host is called by its memory`,
		"h100+ddr5x8":         `no host is called "ddr5x8"`,
		"h100+ddr5-4800x0":    "host ddr5-4800x0: 0 channels: between 1 and 128 are possible",
		"h100+ddr5-100x8":     "100 million transfers a second: between 800 and 20000",
		"h100+ddr5-4800x8-0c": "0 cores: between 1 and 2048 are possible",
		"out/rates":           "out/rates: no such file",
		"missing.json":        "missing.json: no such file",
	} {
		if _, err := Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", name, err, want)
		}
	}
}

// TestDriverNames: names from CUDA and NVML match their own GPU and no other.
func TestDriverNames(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA GeForce RTX 3080": "rtx-3080", "GeForce RTX 3080": "rtx-3080", "NVIDIA GeForce RTX 3090": "rtx-3090", "GeForce RTX 3090": "rtx-3090",
		"NVIDIA GeForce RTX 4090": "rtx-4090", "NVIDIA GeForce RTX 5090": "rtx-5090",
		"NVIDIA A100-PCIE-40GB": "a100-pcie-40gb", "A100-PCIE-40GB": "a100-pcie-40gb", "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
		"NVIDIA A100-SXM4-40GB": "a100-sxm-40gb", "A100-SXM4-40GB": "a100-sxm-40gb", "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
		"NVIDIA L40S": "l40s", "NVIDIA H100 PCIe": "h100-pcie", "NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA H200": "h200",
		"NVIDIA GH200 480GB": "gh200", "NVIDIA B200": "b200", "NVIDIA GB10": "gb10",
		// Names of other GPUs, which begin or end like those of known ones. None may match.
		"NVIDIA GeForce RTX 3080 Laptop GPU": "", "NVIDIA GeForce RTX 3080 Ti": "", "NVIDIA GeForce RTX 3080 Ti Laptop GPU": "", "NVIDIA GeForce RTX 3090 Ti": "",
		"NVIDIA GeForce RTX 4090 D": "", "NVIDIA GeForce RTX 4090 Laptop GPU": "", "NVIDIA GeForce RTX 5090 D": "", "NVIDIA GeForce RTX 5090 Laptop GPU": "",
		"NVIDIA A100-SXM-64GB": "", "NVIDIA A100X": "", "NVIDIA A10": "", "GRID A100-10C": "", "NVIDIA A100-SXM4-40GB MIG 1g.5gb": "",
		"NVIDIA H100 NVL": "", "NVIDIA H100 80GB HBM3 MIG 1g.10gb": "", "NVIDIA H800": "", "NVIDIA H20": "", "NVIDIA H200 NVL": "",
		"NVIDIA GH200 144G HBM3e": "", "NVIDIA GB200": "", "NVIDIA B300 SXM6 AC": "", "NVIDIA L40": "", "NVIDIA L40S-48Q": "", "NVIDIA L4": "",
		"NVIDIA RTX A6000": "", "NVIDIA RTX 6000 Ada Generation": "", "Tesla V100-SXM2-16GB": "", "Tesla T4": "",
		"NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "", "NVIDIA Thor": "", "NVIDIA": "", "GeForce RTX": "",
	} {
		g, err := findGPU(name)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s is taken for %s", name, g.name)
		case want != "" && (err != nil || g.name != want):
			t.Errorf("%s: %+v, %v; want %s", name, g, err, want)
		}
	}
	whole := map[string]bool{}
	for _, name := range []string{"rtx-3080", "rtx-3090", "rtx-4090", "rtx-5090", "a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb", "l40s",
		"h100-pcie", "h100-sxm", "h200", "gh200", "b200", "gb10"} {
		whole[name] = true
	}
	for _, name := range GPUs() {
		if !whole[name] {
			t.Errorf("%s: this test has no name that a driver gives it", name)
		}
	}
}

// TestAt: At gives a GPU found in a computer the rates of its profile, and the cores and memory of
// the computer.
func TestAt(t *testing.T) {
	m, err := At(Found{GPU: "NVIDIA H100 80GB HBM3", DeviceGiB: 79.1, Cores: 16, HostGiB: 120.4})
	if err != nil || m.Name != "h100-sxm+ddr5-4800x8-16c-120g" || m.Host.Cores != 16 || m.Host.Memory != 120.4 || m.Link.Up != 55 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err = At(Found{GPU: "NVIDIA GH200 480GB", Cores: 72, HostGiB: 100}); err != nil || m.Name != "gh200+grace" || m.Host.Memory != 100 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err = At(Found{GPU: "NVIDIA L40S"}); err != nil || m.Name != "l40s+ddr5-4800x8" {
		t.Errorf("%+v, %v", m, err)
	}
	for want, f := range map[string]Found{
		"NVIDIA GeForce RTX 3080 has 12 GiB, the profile rtx-3080 has 10 GiB": {GPU: "NVIDIA GeForce RTX 3080", DeviceGiB: 12},
		`no GPU is called "NVIDIA H100 NVL"`:                                  {GPU: "NVIDIA H100 NVL"},
	} {
		if m, err := At(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v; want %s", f, m, err, want)
		}
	}
}

// TestAliases: no name or alias stands for two GPUs.
func TestAliases(t *testing.T) {
	whose := map[string]string{}
	for _, g := range gpus {
		for _, n := range append([]string{g.name}, g.aliases...) {
			if other := whose[plain(n)]; other != "" && other != g.name {
				t.Errorf("%s is %s and %s", n, other, g.name)
			}
			whose[plain(n)] = g.name
		}
	}
}

func TestParseHost(t *testing.T) {
	for name, want := range map[string]struct {
		cores             int
		gib, copies, norm float64
	}{
		"ddr4-3200x8":              {32, 512, 153.6, 163.84},
		"ddr5-4800x8-64c-1024g":    {64, 1024, 230.4, 245.76},
		"ddr5-4800x8-4c":           {4, 512, 62.5, 66.6667}, // 15 GB/s a core of an update
		"lpddr5x-8533x16-20c-128g": {20, 128, 204.792, 218.4448},
		"grace":                    {72, 440, 437.4, 466.56},
	} {
		h, err := ParseHost(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if near := func(a, b float64) bool { return math.Abs(a-b) < 1e-3*b }; h.Cores != want.cores || h.Memory != want.gib ||
			!near(h.Bandwidth, want.copies) || !near(h.Norm.Rate, want.norm) {
			t.Errorf("%s: %+v, want %+v", name, h, want)
		}
	}
}

// TestUpdates: an 8-bit optimizer's update, which computation limits, is as fast as the host's
// cores allow, and never faster than memory. An optimizer without a measured rate is as fast as
// AdamW.
func TestUpdates(t *testing.T) {
	for name, memory := range map[string]bool{"ddr5-4800x8-4c": false, "ddr5-4800x1-64c": true} {
		h := testkit.Must(ParseHost(name))(t)
		for optimizer, u := range busyUpdates {
			got, want := h.UpdateBy(optimizer).Rate, 4*u.rate*u.bytes
			if memory {
				want = h.Update.Rate
			}
			if math.Abs(got-want) > 1e-3*want {
				t.Errorf("%s: updates by %s at %g GB/s, want %g", name, optimizer, got, want)
			}
		}
		if h.UpdateBy("adamw") != h.Update || h.UpdateBy("another") != h.Update {
			t.Errorf("%s: updates %+v and %+v, want %+v", name, h.UpdateBy("adamw"), h.UpdateBy("another"), h.Update)
		}
	}
}

// TestLoadRefuses: if a rate is missing or absurd, the error names the file, the field, the value
// and the plausible range.
func TestLoadRefuses(t *testing.T) {
	good := testkit.Must(Find("rtx-3090"))(t)
	for _, tc := range []struct {
		name string
		harm func(m *Machine)
		want string
	}{
		{"missing", func(m *Machine) { m.Link.Up = 0 }, "link.h2d_gb_per_s is missing"},
		{"negative", func(m *Machine) { m.Host.Update.Rate = -1 }, "host.update.gb_per_s is -1 GB/s: want a number between"},
		{"negative for an optimizer", func(m *Machine) { m.Host.Updates = map[string]Op{"lion": {Rate: -2}} }, "host.updates.lion.gb_per_s is -2 GB/s: want a number between"},
		{"in FLOP/s", func(m *Machine) { m.Device.Products["bf16"] = []Product{{Rate: 64e12}} }, "device.products.bf16[0].tflops is 6.4e+13 TFLOP/s: want a number between"},
		{"a disk in MB/s", func(m *Machine) { m.Disk.Write = 5000 }, "disk.write_gb_per_s is 5000 GB/s: want a number between 0.0005 and 3000"},
		{"a link in Mb/s", func(m *Machine) { m.Link.Down = 200e3 }, "link.d2h_gb_per_s is 200000 GB/s: want a number between 0.01 and 40000"},
		{"half a shape", func(m *Machine) { m.Device.Products["bf16"] = []Product{{M: 64, Rate: 1}} }, "device.products.bf16[0]: the shape 64 × 0 × 0: want three positive numbers"},
		{"negative in place", func(m *Machine) { m.Device.HostMemory = -1 }, "device.host_memory_gb_per_s is -1 GB/s: want a number between"},
		{"no products", func(m *Machine) { m.Device.Products = nil }, "device.products is missing"},
	} {
		one, _ := json.Marshal(good)
		m := &Machine{}
		testkit.NoError(t, json.Unmarshal(one, m))
		tc.harm(m)
		file := filepath.Join(t.TempDir(), "rates.json")
		if err := m.Save(file); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: saved with %v, want %s", tc.name, err, tc.want)
		}
		raw, _ := json.Marshal(m)
		testkit.NoError(t, os.WriteFile(file, raw, 0o644))
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), file+": ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: loaded with %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestRound(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, -1: -1, 1234.56: 1235, 0.00123456: 0.001235, 9.99996: 10, 5: 5} {
		if got := Round(x); math.Abs(got-want) > 1e-12 {
			t.Errorf("%g: %g, want %g", x, got, want)
		}
	}
	if x := Round(math.NaN()); !math.IsNaN(x) {
		t.Errorf("%g", x)
	}
}

// rewrite makes TestDocumented write the table instead of comparing it.
var rewrite = flag.Bool("rewrite", false, "write the table of docs/planning.md anew")

// TestDocumented: the table in docs/planning.md has the figures of the shipped profiles.
func TestDocumented(t *testing.T) {
	const file, begin, end = "../../docs/planning.md", "| profile |", "\n\n"
	var table strings.Builder
	table.WriteString("| profile | memory | bf16, fp32 products | attention, backward | device memory | link up, down, both | to each other | host |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, g := range gpus {
		m := testkit.Must(Find(g.name))(t)
		peers := "through the host"
		if m.Link.Peer > 0 {
			peers = fmt.Sprint(m.Link.Peer)
		}
		if m.Link.Wires {
			peers += ", NVLink"
		}
		d, l, long := m.Device, m.Link, m.Device.Attention["bf16"][3]
		fmt.Fprintf(&table, "| `%s` | %g GiB | %.0f, %.0f | %.0f, %.0f | %.0f | %g, %g, %g | %s | `%s` |\n", g.name, d.Memory, d.Products["bf16"][0].Rate,
			d.Products["fp32"][0].Rate, long.Forward, long.Backward, d.Bandwidth, l.Up, l.Down, l.Both, peers, g.host)
	}
	raw := testkit.Must(os.ReadFile(file))(t)
	before, rest, found := strings.Cut(string(raw), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table of profiles", file)
	}
	want := strings.TrimSuffix(table.String(), "\n")
	if *rewrite {
		testkit.NoError(t, os.WriteFile(file, []byte(before+want+end+after), 0o644))
		return
	}
	if begin+old != want {
		t.Errorf("%s has another table of profiles; go test ./plan/rates -run Documented -rewrite writes it anew", file)
	}
}
