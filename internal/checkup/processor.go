package checkup

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// processor tells which instructions the update and the CPU's products use.
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

// quota tells whether the container may use the machine's cores. Source:
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

// cpuMax is how much time in how much time a control group may use, 0 without a limit.
func (s Sources) cpuMax(dir string) (limit, period float64) {
	if words := strings.Fields(s.text(dir + "/cpu.max")); len(words) == 2 {
		limit, _ = strconv.ParseFloat(words[0], 64) // "max" is 0
		period, _ = strconv.ParseFloat(words[1], 64)
		return limit, period
	}
	limit, _ = strconv.ParseFloat(s.text(dir+"/cpu.cfs_quota_us"), 64) // -1: none
	period, _ = strconv.ParseFloat(s.text(dir+"/cpu.cfs_period_us"), 64)
	return limit, period
}

// groups are the folders of the process's control groups for a controller, the innermost first,
// of both versions.
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

// inContainer tells whether this looks like a container.
func (s Sources) inContainer() bool {
	return s.exists(".dockerenv") || s.exists("run/.containerenv") || strings.Contains(s.text("proc/1/environ"), "container=")
}

// governor tells whether the kernel keeps clocks low. The drivers intel_pstate and amd-pstate-epp
// raise them under load whatever the governor is called.
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
