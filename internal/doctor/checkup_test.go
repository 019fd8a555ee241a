package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"mt/cudart"
	"mt/host"
	"mt/internal/run/machine"
	"mt/internal/testkit"
)

// tree is a machine's /proc and /sys: file names and contents. A content that begins with -> is a symbolic link.
type tree map[string]string

func (f tree) root(t *testing.T) fs.FS {
	t.Helper()
	dir := t.TempDir()
	for name, text := range f {
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if target, isLink := strings.CutPrefix(text, "->"); isLink && err == nil {
			err = os.Symlink(target, at)
		} else if err == nil {
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		testkit.NoError(t, err)
	}
	return os.DirFS(dir)
}

// card adds a GPU behind a PCI bridge to the tree. now and card are the card's current and maximum
// link, and slot is the slot's maximum link, each with speed and lanes.
func (f tree) card(id, now, card, slot string) tree {
	const bridge = "sys/devices/pci0000:00/0000:00:01.0"
	f["sys/bus/pci/devices/"+id] = "->../../../devices/pci0000:00/0000:00:01.0/" + id
	at := bridge + "/" + id
	f[at+"/vendor"], f[at+"/class"], f[at+"/numa_node"] = "0x10de\n", "0x030000\n", "1\n"
	for name, is := range map[string]string{at + "/current": now, at + "/max": card, bridge + "/max": slot} {
		speed, lanes, _ := strings.Cut(is, " x")
		f[name+"_link_speed"], f[name+"_link_width"] = speed+" GT/s PCIe\n", lanes+"\n"
	}
	return f
}

// find returns the part with the given name, or an empty one.
func find(parts []Part, name string) Part {
	if i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name }); i >= 0 {
		return parts[i]
	}
	return Part{}
}

// usableGPU is a working GPU.
var usableGPU = machine.CUDA{Device: "NVIDIA H100", Memory: 80 << 30, Libraries: []cudart.FoundLibrary{{Library: cudart.BlasLt, Path: "/usr/lib/libcublasLt.so.13", Version: "13.1"}}}

// system fakes the system calls for NUMA. It has four processors, and every request to place memory
// on a node returns err.
type system struct{ err error }

func (system) Affinity() ([]int, error)   { return []int{0, 1, 2, 3}, nil }
func (system) CPU() (int, error)          { return 0, nil }
func (s system) Prefer([]byte, int) error { return s.err }

// twoNodes returns a host with two NUMA nodes, after one request to place memory on node 0. The
// system answered this request with err.
func twoNodes(err error) *host.Nodes {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	n := host.FindNodes(fstest.MapFS{"sys/devices/system/node/has_memory": file("0-1"), "sys/devices/system/node/node0/cpulist": file("0-1"),
		"sys/devices/system/node/node1/cpulist": file("2-3")}, system{err})
	n.Place(make([]byte, 1), 0)
	return n
}

// TestParts: for given contents of /proc and /sys and given measurements, CheckUp reports the
// expected state, text and remedy of a part.
func TestParts(t *testing.T) {
	meminfo := "MemTotal: 67108864 kB\nSwapTotal: 8388608 kB\nSwapFree: 8388608 kB\n"
	two := tree{"sys/devices/system/node/has_memory": "0-1\n"}
	several := func(more tree) tree {
		for k, v := range two {
			more[k] = v
		}
		return more
	}
	thp := func(set string) tree {
		return tree{"sys/kernel/mm/transparent_hugepage/enabled": set, "proc/meminfo": meminfo}
	}
	for i, tc := range []struct {
		files  tree
		set    func(s *Sources)
		part   string
		state  State  // "": no such part
		found  string // a part of the text
		remedy string // one whole line
	}{
		{tree{}, nil, "GPU", OK, "no NVIDIA GPU here", ""},
		{tree{}.card("0000:01:00.0", "16.0 x16", "16.0 x16", "16.0 x16"), nil, "GPU", Broken, "not usable: libcuda does not answer", "$ nvidia-smi"},
		{tree{".dockerenv": ""}.card("0000:01:00.0", "16.0 x16", "16.0 x16", "16.0 x16"), nil, "GPU", Broken, "", "$ docker run --gpus all …"},
		{tree{"proc/driver/nvidia/version": "x"}, nil, "GPU", Broken, "", "$ sudo reboot"},
		{tree{}.card("0000:01:00.0", "16.0 x16", "16.0 x16", "16.0 x16"), func(s *Sources) {
			s.CUDA = machine.CUDA{Problem: "x", Libraries: []cudart.FoundLibrary{{Library: cudart.Runtime, Required: true, Hint: "get it"}}}
		}, "GPU", Broken, "not usable: no libcudart.so", "get it"},
		{tree{}, func(s *Sources) { s.CUDA = usableGPU }, "GPU", OK, "NVIDIA H100, 80 GiB to use", ""},
		{tree{}, func(s *Sources) { s.CUDA = usableGPU }, "cuBLAS", OK, "13.1 /usr/lib/libcublasLt.so.13", ""},
		{tree{}, func(s *Sources) {
			s.CUDA = usableGPU
			s.CUDA.Libraries = []cudart.FoundLibrary{{Library: cudart.BlasLt, Hint: "pip install it"}}
		}, "cuBLAS", Slow, "not found", "pip install it"},

		{tree{}.card("0000:01:00.0", "16.0 x16", "16.0 x16", "16.0 x16"), nil, "link of 0000:01:00.0", OK, "x16, up to PCIe 4.0 x16", ""},
		{tree{}.card("0000:01:00.0", "2.5 x16", "16.0 x16", "32.0 x16"), nil, "link of 0000:01:00.0", OK, "x16, up to PCIe 4.0 x16", ""},
		{tree{}.card("0000:01:00.0", "16.0 x8", "16.0 x8", "16.0 x16"), nil, "link of 0000:01:00.0", OK, "x8, up to PCIe 4.0 x8", ""},
		{tree{}.card("0000:01:00.0", "16.0 x4", "16.0 x16", "16.0 x16"), nil, "link of 0000:01:00.0", Slow, "4 lanes of 16: weights and gradients take 4 times as long", "$ nvidia-smi -q | grep -A 12 'GPU Link Info'"},
		{tree{}.card("0000:01:00.0", "16.0 x8", "16.0 x16", "16.0 x8"), nil, "link of 0000:01:00.0", Slow, "the slot has 8 lanes, the card 16", "put the card into a slot with 16 lanes from the processor (the board's manual says which)"},
		{tree{}.card("0000:01:00.0", "8.0 x16", "16.0 x16", "8.0 x16"), nil, "link of 0000:01:00.0", Slow, "the slot is PCIe 3.0, the card PCIe 4.0", "in the board's setup set the slot's speed to Auto; a riser cable or an older slot may hold it down"},
		{tree{}.card("0000:01:00.0", "Unknown x0", "Unknown x255", "Unknown x255"), nil, "link of 0000:01:00.0", "", "", ""},

		{tree{}, func(s *Sources) {
			s.CUDA = usableGPU
			s.CUDA.State = &machine.GPUState{PCIe: [2]int{1, 8}, BestPCIe: [2]int{4, 16}}
		}, "link", Slow, "8 lanes of 16", "$ nvidia-smi -q | grep -A 12 'GPU Link Info'"},
		{tree{}, func(s *Sources) {
			s.CUDA = usableGPU
			s.CUDA.State = &machine.GPUState{PCIe: [2]int{1, 16}, BestPCIe: [2]int{5, 16}}
		}, "link", OK, "x16, up to PCIe 5.0 x16", ""},
		{tree{}, func(s *Sources) { s.CUDA = usableGPU; s.CUDA.State = &machine.GPUState{} }, "link", "", "", ""},

		{tree{}, func(s *Sources) {
			s.CUDA = usableGPU
			s.CUDA.State = &machine.GPUState{ClockMHz: 1980, MaxMHz: 1980, Celsius: 40, Watts: 100}
		}, "GPU clocks", OK, "1980 of 1980 MHz, 40 °C, 100 W", ""},
		{tree{}, func(s *Sources) {
			s.CUDA = usableGPU
			s.CUDA.State = &machine.GPUState{SlowedDown: []string{"temperature", "temperature, by hardware"}}
		}, "GPU clocks", Slow, "slowed down by: temperature, temperature, by hardware", "$ sudo nvidia-smi -pl WATTS"},

		{tree{}, nil, "processor", OK, "avx512 of avx512, avx2, generic", ""},
		{tree{}, func(s *Sources) { s.Level = "avx2" }, "processor", Slow, "MT_CPU holds it down", "$ unset MT_CPU"},
		{tree{"proc/cpuinfo": "flags\t\t: fpu hypervisor\n"}, func(s *Sources) { s.Levels, s.Level = []string{"generic"}, "generic" }, "processor", Slow, "the virtual machine shows neither", "give it the host's own processor: qemu -cpu host, or in libvirt <cpu mode='host-passthrough'/>"},
		{tree{}, func(s *Sources) { s.Arch, s.Levels, s.Level = "riscv64", []string{"generic"}, "generic" }, "processor", Slow, "no assembly for riscv64", "an x86 or arm64 machine updates weights several times as fast"},
		{tree{}, func(s *Sources) { s.Arch, s.Levels, s.Level = "arm64", []string{"generic"}, "generic" }, "processor", Slow, "built with the tag noasm", "$ go build ./cmd/mt"},
		{tree{}, func(s *Sources) { s.Arch, s.Levels, s.Level = "arm64", []string{"neon", "generic"}, "neon" }, "processor", OK, "neon of neon, generic", ""},

		{tree{"sys/devices/system/cpu/online": "0-63"}, nil, "CPU quota", OK, "this process may run on 8 of 64 cores", ""},
		{tree{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "400000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, nil, "CPU quota", Slow, "may use 4 of 8 cores", "$ docker update --cpus 8 CONTAINER"},
		{tree{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "600000 100000\n"}, nil, "CPU quota", Slow, "may use 6 of 8 cores", "$ docker update --cpus 8 CONTAINER"},
		{tree{"proc/self/cgroup": "3:cpu,cpuacct:/a\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, nil, "CPU quota", Slow, "may use 0.5 of 8 cores", "$ docker update --cpus 8 CONTAINER"},
		{tree{"proc/self/cgroup": "3:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, nil, "CPU quota", OK, "none: 8 cores", ""},
		{tree{"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave", "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "acpi-cpufreq"}, nil, "CPU clocks", Slow, "powersave of acpi-cpufreq", "$ echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"},
		{tree{"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave", "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate"}, nil, "CPU clocks", OK, "", ""},

		{tree{"proc/meminfo": meminfo}, nil, "host memory", OK, "60 GiB is available (MemAvailable of /proc/meminfo), of 64 GiB", ""},
		{tree{}, func(s *Sources) { s.Room = host.Room{Known: true, Bytes: 1 << 20, By: "MemAvailable of /proc/meminfo"} }, "host memory", Broken, "1.0 MiB is available", "$ ps aux --sort=-rss | head"},
		{tree{}, func(s *Sources) { s.Room.By = "memory.max of the control group /a is 62 GiB" }, "host memory", OK, "control group /a", "$ docker update --memory SIZE --memory-swap SIZE CONTAINER"},
		{tree{}, func(s *Sources) { s.Room.By = "ulimit -v is 62 GiB" }, "host memory", OK, "", "$ ulimit -v unlimited"},
		{thp("always [madvise] never\n"), nil, "huge pages", OK, "madvise", ""},
		{thp("always madvise [never]\n"), nil, "huge pages", Slow, "pages of 4 KiB", "$ echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"},
		{tree{"proc/meminfo": meminfo}, nil, "huge pages", Slow, "this kernel has none", "a kernel with CONFIG_TRANSPARENT_HUGEPAGE, as distributions ship it"},
		{tree{}, nil, "huge pages", "", "", ""},
		{tree{"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never", "proc/self/status": "THP_enabled:\t0\n"}, nil, "huge pages", Slow, "for this process", "start mt without the program that switched them off"},
		{tree{"proc/self/limits": "Max locked memory         8388608              8388608              bytes\n"}, nil, "locked memory", OK, "8.0 MiB (ulimit -l)", ""},
		{tree{"proc/self/limits": "Max locked memory         unlimited            unlimited            bytes\n"}, nil, "locked memory", OK, "unlimited (ulimit -l)", ""},

		{tree{"sys/devices/system/node/has_memory": "0\n"}, nil, "NUMA", OK, "one node", ""},
		{several(tree{"proc/self/numa_maps": "5628 default file=/x\n"}), nil, "NUMA", OK, "2 nodes, of which this process may use memory and processors of one", ""},
		{several(tree{"proc/sys/kernel/numa_balancing": "1\n"}), func(s *Sources) { s.Nodes = twoNodes(nil) }, "NUMA", OK, "2 NUMA nodes (node 0: 2 processors, node 1: 2 processors): every layer is laid out over them", ""},
		{several(tree{}), func(s *Sources) { s.Nodes = twoNodes(errors.New("operation not permitted")) }, "NUMA", Slow, "node 1: 2 processors), but the system does not let mt choose", "$ docker run --cap-add SYS_NICE …"},
		{several(tree{"proc/sys/kernel/numa_balancing": "1\n"}), func(s *Sources) { s.Nodes = twoNodes(errors.New("operation not permitted")) }, "NUMA", Slow, "and the kernel moves pages", "$ sudo sysctl kernel.numa_balancing=0"},
		{several(tree{"proc/self/numa_maps": "5628 interleave:0-1 file=/x\n", "proc/sys/kernel/numa_balancing": "0\n"}), nil, "NUMA", OK, "interleave:0-1", ""},
		{several(tree{"proc/self/numa_maps": "5628 bind:0 file=/x\n", "proc/sys/kernel/numa_balancing": "1\n"}.card("0000:01:00.0", "16.0 x16", "16.0 x16", "16.0 x16")), nil, "NUMA", Slow, "GPU 0000:01:00.0 at node 1, and the kernel moves pages", "$ sudo sysctl kernel.numa_balancing=0"},
		{tree{"proc/meminfo": meminfo}, nil, "swap", OK, "0 B of 8.0 GiB used", ""},
		{tree{"proc/meminfo": "SwapTotal: 8388608 kB\nSwapFree: 4194304 kB\n"}, nil, "swap", Slow, "4.0 GiB are swapped out", "$ sudo swapoff -a && sudo swapon -a"},

		{tree{}, nil, "memory rate", OK, "50 GB/s, a copy by 8 cores", ""},
		{tree{}, func(s *Sources) { s.MemoryRate = func() (float64, error) { return 4e9, nil } }, "memory rate", Slow, "4 GB/s", "$ sudo dmidecode -t memory"},
		{tree{}, func(s *Sources) { s.MemoryRate = func() (float64, error) { return 0, errors.New("no memory") } }, "memory rate", Slow, "not measured: no memory", "$ ps aux --sort=-rss | head"},
		{tree{}, nil, "disk", OK, "/runs: 2 GB/s written, 1.0 TiB free", ""},
		{tree{}, func(s *Sources) {
			s.Disk = func() DiskTrial { return DiskTrial{Dir: "/runs", Free: 1 << 40, Rate: 2e9, By: "io_uring"} }
		}, "disk", OK, "/runs: 2 GB/s written, 1.0 TiB free, states by io_uring", ""},
		{tree{}, func(s *Sources) {
			s.Disk = func() DiskTrial { return DiskTrial{Dir: "/runs", Free: math.MaxInt64, Rate: 0.1e9} }
		}, "disk", Slow, "/runs: 0.1 GB/s written", "$ mt doctor --dir FOLDER"},
		{tree{}, func(s *Sources) {
			s.Disk = func() DiskTrial { return DiskTrial{Dir: "/runs", Free: 1 << 30, Rate: 2e9} }
		}, "disk", Slow, "1.0 GiB free", "$ mt doctor --dir FOLDER"},
		{tree{}, func(s *Sources) {
			s.Disk = func() DiskTrial { return DiskTrial{Dir: "/runs", Err: fmt.Errorf("x: %w", syscall.ENOSPC)} }
		}, "disk", Broken, "no space left", "$ du -xh /runs | sort -h | tail"},
		{tree{}, func(s *Sources) { s.Disk = func() DiskTrial { return DiskTrial{Dir: "/", Err: syscall.EACCES} } }, "disk", Slow, "not tried: permission denied", "$ mt doctor --dir FOLDER"},
		{tree{}, func(s *Sources) { s.Disk = func() DiskTrial { return DiskTrial{Dir: "/x", Err: syscall.ENOENT} } }, "disk", Broken, "no such file", "$ mkdir -p /x"},
		{tree{}, func(s *Sources) { s.Disk = func() DiskTrial { return DiskTrial{Dir: "/x", Err: syscall.EIO} } }, "disk", Broken, "input/output error", "$ mt doctor --dir FOLDER"},
	} {
		s := Sources{Root: tc.files.root(t), CUDA: machine.CUDA{Problem: "libcuda does not answer"}, Arch: "amd64", CPUs: 8,
			Room:   host.Room{Known: true, Bytes: 60 << 30, By: "MemAvailable of /proc/meminfo"},
			Levels: []string{"avx512", "avx2", "generic"}, Level: "avx512", MemoryRate: func() (float64, error) { return 50e9, nil },
			Disk: func() DiskTrial { return DiskTrial{Dir: "/runs", Free: 1 << 40, Rate: 2e9} }}
		if tc.set != nil {
			tc.set(&s)
		}
		all := CheckUp(s)
		got := find(all, tc.part)
		if got.State != tc.state || !strings.Contains(got.Found, tc.found) || tc.remedy != "" && !slices.Contains(got.Remedy, tc.remedy) || tc.remedy == "" && len(got.Remedy) > 0 {
			t.Errorf("%d, %s: got %+v\nwant %s, %q, %q", i, tc.part, got, tc.state, tc.found, tc.remedy)
		}
		for _, p := range all {
			for at, line := range p.Remedy {
				if strings.HasSuffix(line, ":") && (at+1 == len(p.Remedy) || !strings.HasPrefix(p.Remedy[at+1], "$ ")) {
					t.Errorf("%d: %q leads to no command: %q", i, line, p.Remedy)
				}
			}
			if (p.State != OK && len(p.Remedy) == 0) || p.Found == "" || p.Name == "" {
				t.Errorf("%d: no remedy or nothing found: %+v", i, p)
			}
		}
		if broken := all.Broken() > 0; broken != slices.ContainsFunc(all, func(p Part) bool { return p.State == Broken }) {
			t.Errorf("%d: %d broken", i, all.Broken())
		}
	}
}

// TestEveryReasonHasARemedy: every reason for reduced clocks in package machine has a remedy here.
func TestEveryReasonHasARemedy(t *testing.T) {
	for _, why := range machine.Slowdowns() {
		if len(slowdowns[why]) == 0 {
			t.Errorf("clocks are low for %q, and nothing says what to do", why)
		}
	}
}

func TestWriteTable(t *testing.T) {
	var b strings.Builder
	p := Parts{{Name: "a", State: OK, Found: "x"}, {Name: "longer", State: Slow, Found: "y", Remedy: []string{"do", "$ this"}}}
	if err := p.WriteTable(&b); err != nil || b.String() != "a       ok    x\nlonger  slow  y\n                do\n                $ this\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestNotAsked: without measurements there are no parts for disk and memory rate.
func TestNotAsked(t *testing.T) {
	for _, p := range CheckUp(Sources{Root: tree{}.root(t)}) {
		if p.Name == "disk" || p.Name == "memory rate" {
			t.Errorf("it was not measured: %+v", p)
		}
	}
}

func TestCount(t *testing.T) {
	for list, want := range map[string]int{"": 0, "0": 1, "0-3,8": 5, "0-3, 6-7\n": 6, "none": 0, "1-many": 0, "many-3": 0, "3-1": 0} {
		if got := count(list); got != want {
			t.Errorf("%q has %d numbers, want %d", list, got, want)
		}
	}
}

func TestProcessor(t *testing.T) {
	for text, want := range map[string]string{"": "", "processor\t: 0\nmodel name\t: A B: 3 GHz \nmodel name\t: C\n": "A B: 3 GHz"} {
		if got := Processor(tree{"proc/cpuinfo": text}.root(t)); got != want {
			t.Errorf("%q names %q, want %q", text, got, want)
		}
	}
}
