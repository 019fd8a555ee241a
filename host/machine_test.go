package host

import (
	"testing"
	"testing/fstest"
)

func TestMachineMemory(t *testing.T) {
	const meminfo = "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\nBuffers: 1 kB\nCached: 3000 kB\nSwapCached: 7 kB\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  Machine
	}{
		"Linux": {map[string]string{"proc/meminfo": meminfo, "proc/self/statm": "100 25 3 4 5 6 0\n"}, Machine{9000 << 10, 4000 << 10, 3000 << 10, 25 * 4096, 0}},
		"a GPU's node": {map[string]string{"proc/meminfo": meminfo, "sys/devices/system/node/has_memory": "1", "sys/devices/system/node/node1/cpulist": "",
			"sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 5000 kB\nNode 1 MemFree: 3000 kB\n"}, Machine{4000 << 10, 1000 << 10, 3000 << 10, 0, 0}},
		"no statm":          {map[string]string{"proc/meminfo": meminfo}, Machine{9000 << 10, 4000 << 10, 3000 << 10, 0, 0}},
		"no /proc":          {nil, Machine{}},
		"nothing of use":    {map[string]string{"proc/meminfo": "MemTotal:\nMemAvailable: many kB\n", "proc/self/statm": "1\n"}, Machine{}},
		"nothing is cached": {map[string]string{"proc/meminfo": "MemTotal: 8 kB\n", "proc/self/statm": "2 1\n"}, Machine{Capacity: 8 << 10, Resident: 4096}},
	} {
		root := fstest.MapFS{}
		for file, text := range tc.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := machineIn(root, 4096); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
