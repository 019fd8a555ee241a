package cudart

import (
	"fmt"
	"slices"
	"strings"
)

// Library is the name of a library: its file name without "lib" and ".so".
type Library string

// The libraries. Runtime and Driver are required; BlasLt and ML are optional.
const (
	Runtime Library = "cudart"
	Driver  Library = "cuda"
	BlasLt  Library = "cublasLt"
	ML      Library = "nvidia-ml"
)

// Libraries lists all libraries in search order. The driver comes first, because its version decides which versions of
// the others fit.
var Libraries = []Library{Driver, Runtime, BlasLt, ML}

// File returns the library's file name without a version.
func (l Library) File() string { return "lib" + string(l) + ".so" }

// Required reports whether the package cannot work without the library.
func (l Library) Required() bool { return l == Runtime || l == Driver }

// Symbols looks up C functions. The real libraries implement it, as do the emulator and the fakes
// of tests.
type Symbols interface {
	// Symbol returns the address of a function of a library; 0: not found.
	Symbol(lib Library, name string) uintptr
}

// Handles of CUDA objects and addresses in device memory. 0 means none, except that Stream 0 is CUDA's default stream.
type (
	// DevicePtr is an address in device memory.
	DevicePtr uintptr
	// Stream is a cudaStream_t, identical to libcuda's CUstream.
	Stream uintptr
	// Event is a cudaEvent_t.
	Event uintptr
	// Context is a CUcontext.
	Context uintptr
	// Module is a CUmodule.
	Module uintptr
	// Function is a CUfunction.
	Function uintptr
)

// CUDA has the C functions of the libraries, ready to call. It needs no Close.
type CUDA struct {
	runtime runtimeFunctions
	driver  driverFunctions
	blasLt  *Blas
	nvml    *NVML

	hostMemory hostMemory
}

// New binds the functions of the libraries behind s. It touches no device. If functions of Runtime or Driver are
// missing, the error is an *Error that matches ErrMissing and lists them all. BlasLt and ML are optional.
func New(s Symbols) (*CUDA, error) {
	c := &CUDA{}
	texts := &describers{}
	b := map[Library]*binder{}
	for _, lib := range Libraries {
		b[lib] = &binder{symbols: s, library: lib, texts: texts}
	}
	c.runtime.bind(b[Runtime])
	c.driver.bind(b[Driver])
	for _, lib := range []Library{Runtime, Driver} {
		if err := b[lib].missingError(); err != nil {
			return nil, err
		}
	}
	blas, ml := &Blas{driver: &c.driver}, &NVML{}
	blas.bind(b[BlasLt])
	if b[BlasLt].missingError() == nil {
		c.blasLt = blas
	}
	ml.bind(b[ML])
	if b[ML].missingError() == nil {
		c.nvml = ml
	}
	return c, nil
}

// BlasLt returns libcublasLt; nil if it is absent.
func (c *CUDA) BlasLt() *Blas { return c.blasLt }

// NVML returns libnvidia-ml; nil if it is absent.
func (c *CUDA) NVML() *NVML { return c.nvml }

// binder looks up the functions of one library for New. asked counts the required functions, and
// missing lists the names not found.
type binder struct {
	symbols Symbols
	library Library
	texts   *describers
	asked   int
	missing []string
}

// need binds a required function. If it is missing, need adds its name to missing.
func (b *binder) need(name string) function {
	f := b.probe(name)
	b.asked++
	if f.addr == 0 {
		b.missing = append(b.missing, name)
	}
	return f
}

// probe binds an optional function; if it is missing, its address is 0.
func (b *binder) probe(name string) function {
	return function{name: name, library: b.library, addr: b.symbols.Symbol(b.library, name), texts: b.texts}
}

func (b *binder) missingError() error {
	switch len(b.missing) {
	case 0:
		return nil
	case b.asked:
		return &Error{Library: b.library, Op: "bind " + b.library.File(), Code: codeMissing, Detail: "the library is absent"}
	}
	slices.Sort(b.missing)
	return &Error{
		Library: b.library, Op: "bind " + b.library.File(), Code: codeMissing,
		Detail: fmt.Sprintf("it lacks %s; is it older than CUDA 11.8?", strings.Join(b.missing, ", ")),
	}
}
