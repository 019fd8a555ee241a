//go:build darwin || freebsd || linux || netbsd

package cudart

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// load opens a library for the rest of the process's life. Its symbols are its
// own: a search may load two versions of one library, and none of those here
// takes symbols of another. The thread is kept because the reason of a failure is
// kept per thread.
func load(file string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// symbol is the address of a function, 0 without.
func symbol(handle uintptr, name string) uintptr {
	at, err := purego.Dlsym(handle, name)
	if err != nil {
		return 0
	}
	return at
}

// loadedFrom is the file that this process mapped for a library's name; where
// the system does not tell, the name. The file may have a longer name, which the
// library's own links to, and even one of another number: libcuda.so.550.54 for
// libcuda.so.1.
func loadedFrom(name string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return name
	}
	stem, _, _ := strings.Cut(name, ".so")
	like := name
	for line := range strings.Lines(string(maps)) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		path := strings.TrimSpace(line[at:])
		switch base := filepath.Base(path) + "."; {
		case strings.HasPrefix(base, name+"."):
			return path
		case strings.HasPrefix(base, stem+".so."):
			like = path
		}
	}
	return like
}
