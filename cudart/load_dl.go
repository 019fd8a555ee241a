//go:build darwin || freebsd || linux || netbsd

package cudart

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// load opens a library, which stays open as long as the process. It makes the library's symbols
// local: a search may load two versions of a library, and a library must not resolve symbols in
// another one loaded here. The goroutine is locked to its OS thread because the loader keeps its
// error message for each thread.
func load(file string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// symbol returns the address of a function; 0: not found.
func symbol(handle uintptr, name string) uintptr {
	at, err := purego.Dlsym(handle, name)
	if err != nil {
		return 0
	}
	return at
}

// loadedFrom returns the file that this process has mapped for a library's name, or the name itself if the system
// does not tell. The file may have a longer or different version than the name: libcuda.so.550.54 for libcuda.so.1.
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
