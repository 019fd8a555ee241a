package host

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"mt/base/human"
)

// OutOfMemory is the error for insufficient host memory.
type OutOfMemory struct {
	What      string // purpose of the memory
	Requested int64  // bytes
	Room      Room   // memory that was available
	Err       error  // error of the system; nil if it was not asked
}

func (e *OutOfMemory) Error() string {
	text := fmt.Sprintf("out of host memory: %s wants %s", e.What, human.Bytes(e.Requested))
	if e.Room.Known {
		text += ", " + e.Room.String()
	}
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

func (e *OutOfMemory) Unwrap() error { return e.Err }

// Room is the additional memory that this process can take, and the name of the limit that bounds it.
type Room struct {
	Known bool   // false: the system does not say how much is left
	Bytes int64  // at least 0
	By    string // name of the limit
}

// String formats r like "2.0 GiB is available (ulimit -v)".
func (r Room) String() string {
	switch {
	case !r.Known:
		return "nobody says how much is available"
	case r.Bytes == 0:
		return fmt.Sprintf("none is available (%s)", r.By)
	}
	return fmt.Sprintf("%s is available (%s)", human.Bytes(r.Bytes), r.By)
}

// Budget returns r as a budget in bytes; 0: unknown, so no limit. If no memory is left, the budget is 1.
func (r Room) Budget() int64 {
	if !r.Known {
		return 0
	}
	return max(r.Bytes, 1)
}

// atMost returns the smaller of r and bytes. If bytes is smaller, or r is unknown, by and args format the name of the
// limit.
func (r Room) atMost(bytes int64, by string, args ...any) Room {
	if r.Known && r.Bytes <= bytes {
		return r
	}
	return Room{Known: true, Bytes: max(bytes, 0), By: fmt.Sprintf(by, args...)}
}

// AvailableMemory returns the bytes that this process can take before the system refuses or runs out of memory. It is
// the smallest of:
//   - MemAvailable in /proc/meminfo, without the memory of NUMA nodes without processors
//   - the room under the limits of the process's control groups
//   - the room under ulimit -v and -d
//
// Without /proc the result is unknown.
func AvailableMemory() Room { return availableIn(os.DirFS("/")) }

// availableIn is AvailableMemory for any file system root, so that tests can use their own files.
func availableIn(root fs.FS) Room {
	var room Room
	if kib := field(root, "proc/meminfo", "MemAvailable:"); kib >= 0 {
		if far := farMemory(root); far.Capacity > 0 {
			room = room.atMost(kib<<10-far.Available, "MemAvailable of /proc/meminfo, without NUMA nodes that have no processors")
		} else {
			room = room.atMost(kib<<10, "MemAvailable of /proc/meminfo")
		}
	}
	room = room.underLimits(root)
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return room
	}
	for line := range strings.Lines(string(groups)) {
		// A line reads hierarchy:controllers:path. For version 2 of control groups controllers is empty.
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		files := groupFiles{base: "sys/fs/cgroup", limit: "memory.max", used: "memory.current", cache: []string{"inactive_file", "active_file"}}
		if part[1] != "" {
			files = groupFiles{base: "sys/fs/cgroup/memory", limit: "memory.limit_in_bytes",
				used: "memory.usage_in_bytes", cache: []string{"total_inactive_file", "total_active_file"}}
			if !strings.Contains(","+part[1]+",", ",memory,") {
				continue
			}
		}
		room = files.leave(room, root, part[2])
	}
	return room
}

// limits lists the process's resource limits on memory: the limit's name in /proc/self/limits, the line of
// /proc/self/status that has the usage, and the ulimit command.
var limits = []struct{ name, used, ulimit string }{
	{"Max address space", "VmSize:", "ulimit -v"},
	{"Max data size", "VmData:", "ulimit -d"},
}

// limitSlack is the most memory, in bytes, that the Go runtime maps for itself during a run. The
// runtime maps its heap in ranges of 64 MiB, and a stack for every thread. The room under a ulimit
// is reduced by it.
const limitSlack = 192 << 20

// underLimits returns the smaller of r and the memory that the process may still take under its resource limits.
// Sources: getrlimit(2), RLIMIT_AS and RLIMIT_DATA; proc_pid_limits(5).
func (r Room) underLimits(root fs.FS) Room {
	b, err := fs.ReadFile(root, "proc/self/limits")
	if err != nil {
		return r
	}
	for line := range strings.Lines(string(b)) {
		for _, l := range limits {
			rest, ok := strings.CutPrefix(line, l.name+" ")
			words := strings.Fields(rest)
			if !ok || len(words) == 0 {
				continue
			}
			limit, err := strconv.ParseInt(words[0], 10, 64) // the soft limit; "unlimited" is not a number
			used := field(root, "proc/self/status", l.used)
			if err == nil && used >= 0 {
				r = r.atMost(limit-used<<10-limitSlack, "%s is %s", l.ulimit, human.Bytes(limit))
			}
		}
	}
	return r
}

// groupFiles names the files of one version of control groups. Sources:
// https://docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/memory.html.
type groupFiles struct {
	base, limit, used string
	cache             []string // lines of memory.stat for pages that the kernel can drop
}

// leave returns the smaller of room and the memory that the control groups still allow: the group
// at dir and each of its ancestors.
func (f groupFiles) leave(room Room, root fs.FS, dir string) Room {
	for dir = path.Join("/", dir); ; dir = path.Dir(dir) {
		at := path.Join(f.base, dir)
		limit, okLimit := number(root, path.Join(at, f.limit))
		used, okUsed := number(root, path.Join(at, f.used))
		if okLimit && okUsed && limit < 1<<60 { // version 1 writes "no limit" as a huge number
			left := limit - used
			for _, pages := range f.cache {
				left += max(0, field(root, path.Join(at, "memory.stat"), pages))
			}
			room = room.atMost(min(left, limit), "%s of the control group %s is %s", path.Base(f.limit), dir, human.Bytes(limit))
		}
		if dir == "/" {
			return room
		}
	}
}

// number returns the number in a file that contains only a number. It returns false for any other file.
func number(root fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// field returns the number after key in the file name, where each line begins with a key; −1: there is none.
func field(root fs.FS, name, key string) int64 {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) >= 2 && words[0] == key {
			if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}
