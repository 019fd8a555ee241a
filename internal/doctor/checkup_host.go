package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"mt/base/human"
)

// leastMemory is the memory in bytes that mt needs to start.
const leastMemory = 256 << 20

// memory checks how much memory is available, and which limit applies.
func memory(s Sources) []Part {
	const name = "host memory"
	if !s.Room.Known {
		return nil
	}
	found, all := s.Room.String(), s.kib("MemTotal:")
	if all > 0 {
		found += ", of " + human.Bytes(all)
	}
	var remedy []string
	switch by := s.Room.By; {
	case strings.Contains(by, "control group"):
		remedy = []string{"the limit is the container's; to raise it:", "$ docker update --memory SIZE --memory-swap SIZE CONTAINER", "in Kubernetes: resources.limits.memory"}
	case strings.HasPrefix(by, "ulimit"):
		option, _, _ := strings.Cut(strings.TrimPrefix(by, "ulimit "), " ")
		remedy = []string{"the limit is the shell's; before mt:", "$ ulimit " + option + " unlimited"}
	}
	if s.Room.Bytes < leastMemory {
		if remedy == nil {
			remedy = []string{"end other programs; those that hold most:", "$ ps aux --sort=-rss | head"}
		}
		return one(name, Broken, found, remedy...)
	}
	return one(name, OK, found, remedy...)
}

// hugePages checks whether memory comes in pages of 2 MiB, which mt requests with madvise. Without them the first
// touch of memory is six times as slow, and updates miss the TLB. Source:
// https://docs.kernel.org/admin-guide/mm/transhuge.html
func hugePages(s Sources) []Part {
	const name, file = "huge pages", "sys/kernel/mm/transparent_hugepage/enabled"
	set := chosen(s.text(file))
	switch {
	case set == "" && !s.exists("proc/meminfo"):
		return nil
	case set == "":
		return one(name, Slow, "this kernel has none: arenas are made of pages of 4 KiB", "a kernel with CONFIG_TRANSPARENT_HUGEPAGE, as distributions ship it")
	case set == "never":
		return one(name, Slow, "switched off: arenas are made of pages of 4 KiB", "$ echo madvise | sudo tee /"+file, "to keep it: transparent_hugepage=madvise on the kernel's command line")
	case s.after("proc/self/status", "THP_enabled:") == "0":
		return one(name, Slow, "switched off for this process (PR_SET_THP_DISABLE): arenas are made of pages of 4 KiB", "start mt without the program that switched them off")
	}
	return one(name, OK, set)
}

// lockedMemory shows the limit of locked memory, because many users suspect it first. It is always OK: NVIDIA's driver
// pins memory regardless of the limit.
func lockedMemory(s Sources) []Part {
	words := strings.Fields(s.after("proc/self/limits", "Max locked memory"))
	if len(words) == 0 {
		return nil
	}
	limit := words[0]
	if n, err := strconv.ParseInt(limit, 10, 64); err == nil {
		limit = human.Bytes(n)
	}
	return one("locked memory", OK, limit+" (ulimit -l): mt needs none, since the driver pins memory without it")
}

// nodes checks whether runs use the memory of all NUMA nodes. Source:
// https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html
func nodes(s Sources) []Part {
	const name = "NUMA"
	n := count(s.text("sys/devices/system/node/has_memory"))
	if n == 0 {
		return nil
	}
	if n == 1 {
		return one(name, OK, "one node")
	}
	found, remedy := s.laidOut(n)
	for _, id := range s.gpus() {
		if node := s.text(pciDevices + "/" + id + "/numa_node"); node != "" && node != "-1" {
			found += fmt.Sprintf(", GPU %s at node %s", id, node)
		}
	}
	placed := s.Nodes != nil && s.Nodes.Note() == "" // the kernel's NUMA balancing does not move memory that mt has placed
	if s.text("proc/sys/kernel/numa_balancing") == "1" && !placed {
		found += ", and the kernel moves pages between nodes meanwhile"
		remedy = append(remedy, "$ sudo sysctl kernel.numa_balancing=0")
	}
	if remedy != nil {
		return one(name, Slow, found, remedy...)
	}
	return one(name, OK, found)
}

// laidOut says how host memory is distributed over n NUMA nodes. It adds a remedy if a better distribution is
// possible.
func (s Sources) laidOut(n int) (found string, remedy []string) {
	policy := "default"
	if words := strings.Fields(s.text("proc/self/numa_maps")); len(words) > 1 {
		policy = words[1]
	}
	switch {
	case s.Nodes != nil && s.Nodes.Note() != "":
		return fmt.Sprintf("%s, but %s", s.Nodes, s.Nodes.Note()),
			[]string{"let mt place memory:", "$ docker run --cap-add SYS_NICE …", "or spread the arenas over all nodes:", "$ numactl --interleave=all mt train CONFIG.yaml"}
	case s.Nodes != nil:
		return fmt.Sprintf("%s: every layer is laid out over them", s.Nodes), nil
	case policy == "default":
		return fmt.Sprintf("%d nodes, of which this process may use memory and processors of one", n), nil
	}
	return fmt.Sprintf("%d nodes, memory policy %s", n, policy), nil
}

// swapped is an amount of used swap space in bytes. From this amount on, the check of swap reports Slow.
const swapped = 1 << 30

// swap checks whether memory was swapped out.
func swap(s Sources) []Part {
	all := s.kib("SwapTotal:")
	used := all - s.kib("SwapFree:")
	switch {
	case all == 0:
		return nil
	case used >= swapped:
		return one("swap", Slow, human.Bytes(used)+" are swapped out", "once enough memory is free, bring it back; and tell the kernel to swap less:",
			"$ sudo swapoff -a && sudo swapon -a", "$ sudo sysctl vm.swappiness=1")
	}
	return one("swap", OK, fmt.Sprintf("%s of %s used", human.Bytes(used), human.Bytes(all)))
}

// slowMemory is a memory rate in bytes per second below which the check reports the memory as slow. Even a single
// memory module is faster.
const slowMemory = 10e9

// memoryRate measures the memory rate.
func memoryRate(s Sources) []Part {
	const name = "memory rate"
	if s.MemoryRate == nil {
		return nil
	}
	rate, err := s.MemoryRate()
	if err != nil {
		return one(name, Slow, "not measured: "+err.Error(), "end other programs; those that hold most memory:", "$ ps aux --sort=-rss | head")
	}
	found := fmt.Sprintf("%.3g GB/s, a copy by %d cores, read and write counted", rate/1e9, s.CPUs)
	if rate < slowMemory {
		return one(name, Slow, found, "other programs may be at work:", "$ top", "every channel of the board should have a module, all of one speed:", "$ sudo dmidecode -t memory")
	}
	return one(name, OK, found)
}

// Processor returns the name of the first processor, given the machine's root folder; "" if unknown.
func Processor(root fs.FS) string {
	_, name, _ := strings.Cut(Sources{Root: root}.after("proc/cpuinfo", "model name"), ":")
	return strings.TrimSpace(name)
}

// processor checks which instruction set updates and CPU products use.
func processor(s Sources) []Part {
	const name = "processor"
	found := fmt.Sprintf("%s of %s", s.Level, strings.Join(s.Levels, ", "))
	switch {
	case len(s.Levels) > 0 && s.Level != s.Levels[0]:
		return one(name, Slow, found+": the environment variable MT_CPU holds it down", "$ unset MT_CPU")
	case s.Level != "generic":
		return one(name, OK, found)
	case s.Arch == "amd64" && slices.Contains(strings.Fields(s.after("proc/cpuinfo", "flags")), "hypervisor"):
		return one(name, Slow, "the virtual machine shows neither AVX2 nor AVX-512: updates run in plain Go",
			"give it the host's own processor: qemu -cpu host, or in libvirt <cpu mode='host-passthrough'/>")
	case s.Arch == "amd64":
		return one(name, Slow, "neither AVX2 nor AVX-512: updates run in plain Go", "another machine: processors since 2013 (Intel) and 2015 (AMD) have AVX2")
	case s.Arch == "arm64":
		return one(name, Slow, "mt was built with the tag noasm: updates run in plain Go", "build it without that tag:", "$ go build ./cmd/mt")
	}
	return one(name, Slow, "mt has no assembly for "+s.Arch+": updates run in plain Go", "an x86 or arm64 machine updates weights several times as fast")
}

// quota checks whether a control group limits the cores of this process. Source:
// https://docs.kernel.org/admin-guide/cgroup-v2.html, scheduler/sched-bwc.html.
func quota(s Sources) []Part {
	const name = "CPU quota"
	cpus := count(s.text("sys/devices/system/cpu/online"))
	for _, dir := range s.groups("cpu") {
		limit, period := s.cpuMax(dir)
		if limit <= 0 || period <= 0 {
			continue
		}
		if got := limit / period; got < float64(s.CPUs) {
			return one(name, Slow, fmt.Sprintf("the control group may use %.3g of %d cores", got, max(cpus, s.CPUs)),
				"give the container more, or no limit:", fmt.Sprintf("$ docker update --cpus %d CONTAINER", max(cpus, s.CPUs)),
				"in Kubernetes: resources.limits.cpu; in systemd:", "$ systemctl set-property --runtime UNIT CPUQuota=")
		}
	}
	if cpus > 0 && s.CPUs < cpus {
		return one(name, OK, fmt.Sprintf("this process may run on %d of %d cores (cpuset, taskset or numactl)", s.CPUs, cpus))
	}
	return one(name, OK, fmt.Sprintf("none: %d cores", s.CPUs))
}

// cpuMax reads from dir how much CPU time (limit) a control group may use in each period, both in µs. A limit of 0 or
// below means no limit.
func (s Sources) cpuMax(dir string) (limit, period float64) {
	if words := strings.Fields(s.text(dir + "/cpu.max")); len(words) == 2 {
		limit, _ = strconv.ParseFloat(words[0], 64) // "max" parses as 0
		period, _ = strconv.ParseFloat(words[1], 64)
		return limit, period
	}
	limit, _ = strconv.ParseFloat(s.text(dir+"/cpu.cfs_quota_us"), 64) // -1: no limit
	period, _ = strconv.ParseFloat(s.text(dir+"/cpu.cfs_period_us"), 64)
	return limit, period
}

// groups returns the folders of the control groups to which this process belongs for a controller such as cpu,
// innermost first. It knows cgroup v1 and v2.
func (s Sources) groups(controller string) (out []string) {
	for line := range strings.Lines(s.text("proc/self/cgroup")) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		base := "sys/fs/cgroup"
		if part[1] != "" {
			if !slices.Contains(strings.Split(part[1], ","), controller) {
				continue
			}
			base = "sys/fs/cgroup/" + part[1]
			if !s.exists(base) {
				base = "sys/fs/cgroup/" + controller
			}
		}
		for dir := path.Join("/", part[2]); ; dir = path.Dir(dir) {
			out = append(out, path.Join(base, dir))
			if dir == "/" {
				break
			}
		}
	}
	return out
}

// inContainer reports whether the process seems to run in a container.
func (s Sources) inContainer() bool {
	return s.exists(".dockerenv") || s.exists("run/.containerenv") || strings.Contains(s.text("proc/1/environ"), "container=")
}

// governor checks whether the kernel keeps CPU clocks low. intel_pstate and amd-pstate-epp raise clocks under load
// with any governor.
func governor(s Sources) []Part {
	const at = "sys/devices/system/cpu/cpu0/cpufreq/"
	name, driver := s.text(at+"scaling_governor"), s.text(at+"scaling_driver")
	switch {
	case name == "":
		return nil
	case name == "powersave" && driver != "intel_pstate" && driver != "amd-pstate-epp", name == "userspace":
		return one("CPU clocks", Slow, fmt.Sprintf("the governor %s of %s keeps them low", name, driver),
			"$ echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
	}
	return one("CPU clocks", OK, fmt.Sprintf("governor %s of %s", name, driver))
}

// DiskTrial is the result of a test write to a folder.
type DiskTrial struct {
	Dir  string
	Free int64   // bytes; math.MaxInt64: unknown
	Rate float64 // bytes written per second, including the flush to disk
	By   string  // I/O engine for states in this folder (state_dir); "": not tested
	Err  error
}

// Limits below which the check reports a disk as slow or nearly full. A checkpoint of a 7B model has 90 GB.
const (
	slowDisk = 200e6   // bytes per second: such a checkpoint takes seven minutes
	lowDisk  = 8 << 30 // free bytes
)

// disk checks how fast checkpoints can be written, and whether there is room.
func disk(s Sources) []Part {
	const name = "disk"
	if s.Disk == nil {
		return nil
	}
	d := s.Disk()
	elsewhere := []string{"look at another disk, and give runs an output_dir there:", "$ mt doctor --dir FOLDER"}
	if d.Err != nil {
		if errors.Is(d.Err, fs.ErrNotExist) {
			return one(name, Broken, fmt.Sprintf("%s: %v", d.Dir, d.Err), "$ mkdir -p "+d.Dir)
		}
		if errors.Is(d.Err, syscall.ENOSPC) || errors.Is(d.Err, syscall.EDQUOT) {
			return one(name, Broken, fmt.Sprintf("%s: %v", d.Dir, d.Err), append([]string{"what takes most room there:", "$ du -xh " + d.Dir + " | sort -h | tail"}, elsewhere...)...)
		}
		if errors.Is(d.Err, fs.ErrPermission) || errors.Is(d.Err, syscall.EROFS) {
			return one(name, Slow, fmt.Sprintf("%s: not tried: %v", d.Dir, d.Err), elsewhere...)
		}
		return one(name, Broken, fmt.Sprintf("%s: %v", d.Dir, d.Err), elsewhere...)
	}
	found := fmt.Sprintf("%s: %.3g GB/s written", d.Dir, d.Rate/1e9)
	if d.Free < math.MaxInt64 {
		found += ", " + human.Bytes(d.Free) + " free"
	}
	if d.By != "" {
		found += ", states by " + d.By
	}
	if d.Rate < slowDisk || d.Free < lowDisk {
		return one(name, Slow, found, elsewhere...)
	}
	return one(name, OK, found)
}
