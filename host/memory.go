package host

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// OutOfMemory says that host memory does not suffice.
type OutOfMemory struct {
	What      string // what it was for
	Requested int64  // bytes
	Available int64  // bytes; 0: the system does not say
	Err       error  // what the system said, if it was asked
}

func (e *OutOfMemory) Error() string {
	text := fmt.Sprintf("out of host memory: %s wants %s", e.What, gib(e.Requested))
	if e.Available > 0 {
		text += fmt.Sprintf(", %s is available", gib(e.Available))
	}
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

func (e *OutOfMemory) Unwrap() error { return e.Err }

func gib(n int64) string { return fmt.Sprintf("%.3f GiB", float64(n)/(1<<30)) }

// AvailableMemory is how many bytes this process can take before the system
// runs out: MemAvailable of /proc/meminfo, or what the limit of a control group
// around the process leaves, whichever is less. 0 means the system does not
// say (it is not Linux, or /proc is not mounted).
func AvailableMemory() int64 { return availableIn(os.DirFS("/")) }

// availableIn is AvailableMemory on the file system whose root is root.
func availableIn(root fs.FS) int64 {
	available := max(0, field(root, "proc/meminfo", "MemAvailable:")*1024)
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return available
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path; version 2 has no controllers.
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		files := groupFiles{base: "sys/fs/cgroup", limit: "memory.max", used: "memory.current", cache: "inactive_file"}
		if part[1] != "" {
			files = groupFiles{base: "sys/fs/cgroup/memory", limit: "memory.limit_in_bytes",
				used: "memory.usage_in_bytes", cache: "total_inactive_file"}
			if !strings.Contains(","+part[1]+",", ",memory,") {
				continue
			}
		}
		if left, ok := files.left(root, part[2]); ok && (available == 0 || left < available) {
			available = max(left, 1)
		}
	}
	return available
}

// groupFiles are the files of one version of control groups. Source:
// https://docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/memory.html.
type groupFiles struct{ base, limit, used, cache string }

// left is the least that the group at dir and those around it leave, and
// whether any of them has a limit. Page cache that is not in use counts as left.
func (f groupFiles) left(root fs.FS, dir string) (int64, bool) {
	least, limited := int64(0), false
	for dir = path.Join("/", dir); ; dir = path.Dir(dir) {
		at := path.Join(f.base, dir)
		limit, okLimit := number(root, path.Join(at, f.limit))
		used, okUsed := number(root, path.Join(at, f.used))
		if okLimit && okUsed && limit < 1<<60 { // version 1 writes "no limit" as a huge number
			left := limit - used + max(0, field(root, path.Join(at, "memory.stat"), f.cache))
			if !limited || left < least {
				least, limited = left, true
			}
		}
		if dir == "/" {
			return least, limited
		}
	}
}

// number reads a file that holds one number.
func number(root fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// field is the number behind key in a file of lines, −1 without one.
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
