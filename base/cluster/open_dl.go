//go:build darwin || freebsd || linux || netbsd

package cluster

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// open loads a library with global symbols, because Open MPI's plugins take symbols from it. If file has no slash, the
// loader searches its path.
func open(file string) (*library, error) {
	runtime.LockOSThread() // the loader stores errors for each thread
	defer runtime.UnlockOSThread()
	defer keepSignals()()
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	l, err := newLibrary(file, func(name string) uintptr {
		at, err := purego.Dlsym(handle, name)
		if err != nil {
			return 0
		}
		return at
	})
	if err != nil {
		_ = purego.Dlclose(handle) // the library is useless, and err is the relevant error
		return nil, err
	}
	l.handle, l.path = handle, file
	if !strings.Contains(file, "/") {
		l.path = mapped(file)
	}
	return l, nil
}

// shut unloads a library that was not used to start MPI.
func shut(l *library) { _ = purego.Dlclose(l.handle) } // a library that stays loaded is harmless

// mapped returns the path of the file mapped under a library's name, or the name if the system does not tell.
func mapped(name string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return name
	}
	for line := range strings.Lines(string(maps)) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.HasPrefix(filepath.Base(line[at:]), name) {
			return strings.TrimSpace(line[at:])
		}
	}
	return name
}
