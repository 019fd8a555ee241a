package checkup

import (
	"fmt"
	"strconv"
	"strings"

	"mt/internal/human"
)

// leastMemory is what mt needs to start.
const leastMemory = 256 << 20

// memory tells how much may be taken, and what limits it.
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

// hugePages tells whether memory comes in pages of 2 MiB, for which mt asks (madvise). Without
// them the first touch of memory is six times as slow, and updates miss the TLB. Source:
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

// lockedMemory shows the limit that many look for first. Memory is pinned by NVIDIA's driver,
// which does not go by it.
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

// nodes tells whether memory of all NUMA nodes is used. Source:
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
	placed := s.Nodes != nil && s.Nodes.Note() == "" // the kernel leaves what was placed where it is
	if s.text("proc/sys/kernel/numa_balancing") == "1" && !placed {
		found += ", and the kernel moves pages between nodes meanwhile"
		remedy = append(remedy, "$ sudo sysctl kernel.numa_balancing=0")
	}
	if remedy != nil {
		return one(name, Slow, found, remedy...)
	}
	return one(name, OK, found)
}

// laidOut says what becomes of arenas on n nodes, and what to do about it if it could be better.
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

// swapped is how much in swap is worth a word, in bytes.
const swapped = 1 << 30

// swap tells whether memory was swapped out.
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

// slowMemory is the rate below which one module of memory would do better, in bytes a second.
const slowMemory = 10e9

// memoryRate measures how fast memory is.
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
