package host

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Machine is the memory of this machine and of this process, in bytes; 0 where the
// system does not say.
type Machine struct {
	Capacity  int64 // that there is
	Available int64 // that programs can still take
	Cached    int64 // copies of files, of which most counts as available
	Resident  int64 // of this process

	Nodes int // over how many NUMA nodes arenas are laid out; 0 where there is one
}

// MachineMemory asks the system. It reads a few small files of /proc and /sys. Memory of NUMA nodes that have no
// processors counts as none.
func MachineMemory() Machine {
	m := machineIn(os.DirFS("/"), int64(os.Getpagesize()))
	if n := MachineNodes(); n != nil {
		m.Nodes = n.Count()
	}
	return m
}

// machineIn is MachineMemory for the file system with that root, and pages of that many
// bytes. Source: proc_meminfo(5), proc_pid_statm(5).
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
			break // the others come before it
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
