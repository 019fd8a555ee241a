package host

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// far has the total and the available memory, in bytes, of all NUMA nodes without processors, such
// as the memory of a GH200's GPU.
type far struct{ Capacity, Available int64 }

// farMemory returns the memory of NUMA nodes without processors. The system includes that memory in MemTotal and
// MemAvailable. On a GH200 it is the GPU's memory, so a budget of host memory must not include it. Sources: the
// kernel's Documentation/ABI/stable/sysfs-devices-node, and si_mem_available for how a node's available memory is
// computed.
func farMemory(root fs.FS) (m far) {
	for _, id := range WithoutProcessors(root) {
		info, err := fs.ReadFile(root, fmt.Sprintf("sys/devices/system/node/node%d/meminfo", id))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(info)) { // Node 1 MemFree:  98304 kB
			words := strings.Fields(line)
			if len(words) < 4 {
				continue
			}
			kib, err := strconv.ParseInt(words[3], 10, 64)
			if err != nil || kib < 0 {
				continue
			}
			switch words[2] {
			case "MemTotal:":
				m.Capacity += kib << 10
			case "MemFree:", "Active(file):", "Inactive(file):", "SReclaimable:":
				m.Available += kib << 10
			}
		}
	}
	return m
}
