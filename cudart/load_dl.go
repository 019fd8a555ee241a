//go:build darwin || freebsd || linux || netbsd

package cudart

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// load opens a library for the rest of the process's life. Its symbols stay local
// to it: a search may load two versions of one library, and none of the libraries
// loaded here may take a symbol of another. The goroutine is locked to its thread
// because the loader keeps the reason of a failure per thread.
func load(file string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// symbol is the address of a function, 0 where the library lacks it.
func symbol(handle uintptr, name string) uintptr {
	at, err := purego.Dlsym(handle, name)
	if err != nil {
		return 0
	}
	return at
}

// loadedFrom is the file that this process mapped for a library's name, or the name
// itself where the system does not tell. The library's name may be a link to a file
// with a longer name, and even another number: libcuda.so.550.54 for libcuda.so.1.
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
