//go:build darwin || freebsd || linux || netbsd

package cluster

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// open loads a library for all of the process: the parts that Open MPI loads by itself
// take symbols from it. Where file has no slash the loader searches its path.
func open(file string) (*library, error) {
	runtime.LockOSThread() // the loader keeps the reason of a failure per thread
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
		_ = purego.Dlclose(handle) // it is of no use, and the error that counts is err
		return nil, err
	}
	l.handle, l.path = handle, file
	if !strings.Contains(file, "/") {
		l.path = mapped(file)
	}
	return l, nil
}

// shut gives back a library that MPI was not started with.
func shut(l *library) { _ = purego.Dlclose(l.handle) } // what stays loaded is only not used

// mapped is the file that this process has mapped for a library's name, or the name
// where the system does not tell.
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
