package host

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Machine has the memory of this machine and this process, in bytes; 0: unknown.
type Machine struct {
	Capacity  int64 // total
	Available int64 // available to programs
	Cached    int64 // page cache; most of it counts as available
	Resident  int64 // of this process

	Nodes int // NUMA nodes that arenas are distributed over; 0 for one node
}

// MachineMemory asks the system for the memory of this machine. It reads a few small files of /proc and /sys. Memory of
// NUMA nodes without processors does not count.
func MachineMemory() Machine {
	m := machineIn(os.DirFS("/"), int64(os.Getpagesize()))
	if n := MachineNodes(); n != nil {
		m.Nodes = n.Count()
	}
	return m
}

// machineIn is MachineMemory for any file system root, so that tests can use their own files. page
// is the size of a page in bytes. Sources: proc_meminfo(5), proc_pid_statm(5).
func machineIn(root fs.FS, page int64) (m Machine) {
	info, _ := fs.ReadFile(root, "proc/meminfo")
	of := map[string]*int64{"MemTotal:": &m.Capacity, "MemAvailable:": &m.Available, "Cached:": &m.Cached}
	for line := range strings.Lines(string(info)) {
		words := strings.Fields(line)
		if len(words) < 2 || of[words[0]] == nil {
			continue
		}
		if kib, err := strconv.ParseInt(words[1], 10, 64); err == nil {
			*of[words[0]] = kib << 10
		}
		if words[0] == "Cached:" {
			break // all other wanted lines come before this one
		}
	}
	far := farMemory(root)
	m.Capacity, m.Available = max(0, m.Capacity-far.Capacity), max(0, m.Available-far.Available)
	statm, _ := fs.ReadFile(root, "proc/self/statm")
	if words := strings.Fields(string(statm)); len(words) > 1 {
		if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
			m.Resident = n * page
		}
	}
	return m
}
