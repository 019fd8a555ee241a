//go:build darwin || freebsd || linux || netbsd

package cluster

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// open loads a library file. Its symbols become global, because Open MPI's plugins take symbols from it. If file has no
// slash, the loader searches its own path for the name.
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

// shut unloads a library that is not used.
func shut(l *library) { _ = purego.Dlclose(l.handle) } // a library that stays loaded is harmless

// mapped returns the path of the file that the loader has loaded for the library called name. If
// the system does not say, it returns name.
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
