//go:build darwin || freebsd || linux || netbsd

package openblas

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ebitengine/purego"
)

// load opens the library at path and binds the functions of Library. The fields of missing optional functions stay
// empty.
func load(path string) (*Library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("dlopen: %w", err)
	}
	l := &Library{Path: path, setThreads: func(int) {}}
	plain, wide := spellings("cblas_sgemm")
	if at := symbol(handle, plain); at != 0 {
		var f sgemm32
		purego.RegisterFunc(&f, at)
		l.multiply = with32(f)
	} else if at := symbol(handle, wide); at != 0 {
		var f sgemm64
		purego.RegisterFunc(&f, at)
		l.multiply = with64(f)
	} else {
		return nil, errors.Join(errors.New("it has no cblas_sgemm"), purego.Dlclose(handle))
	}
	l.describe(handle)
	return l, nil
}

// describe binds the optional functions of the library: those that describe it, and the one that
// sets its number of threads.
func (l *Library) describe(handle uintptr) {
	find := func(names ...string) uintptr {
		for _, name := range names {
			plain, wide := spellings(name)
			if at := symbol(handle, append(plain, wide...)); at != 0 {
				return at
			}
		}
		return 0
	}
	for name, field := range map[string]*string{"openblas_get_config": &l.Config, "openblas_get_corename": &l.Core} {
		if at := find(name); at != 0 {
			var f func() string
			purego.RegisterFunc(&f, at)
			*field = words(f())
		}
	}
	l.Name = filepath.Base(l.Path)
	// Threads of Intel's OpenMP wait 200 ms for more work: KMP_BLOCKTIME in Intel's oneAPI compiler guide.
	for _, of := range []struct {
		name, threads string
		spins         time.Duration
	}{{"OpenBLAS", "openblas_set_num_threads", 0}, {"MKL", "MKL_Set_Num_Threads", 200 * time.Millisecond}} {
		if at := find(of.threads); at != 0 {
			var f func(int32)
			purego.RegisterFunc(&f, at)
			l.Name, l.Spins, l.setThreads = of.name, of.spins, func(n int) { f(int32(n)) }
			return
		}
	}
}

// symbol returns the address of the first of names that the library has; 0: none.
func symbol(handle uintptr, names []string) uintptr {
	for _, name := range names {
		if at, err := purego.Dlsym(handle, name); err == nil && at != 0 {
			return at
		}
	}
	return 0
}
