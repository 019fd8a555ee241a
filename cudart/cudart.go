package cudart

import (
	"fmt"
	"slices"
	"strings"
)

// Library names one of the libraries, as its file is named without "lib" and ".so".
type Library string

// The libraries. Runtime and Driver are required; BlasLt and ML may be absent.
const (
	Runtime Library = "cudart"
	Driver  Library = "cuda"
	BlasLt  Library = "cublasLt"
	ML      Library = "nvidia-ml"
)

// Libraries are all libraries, in the order in which they are searched: the
// driver first, as its version decides which of the others fit.
var Libraries = []Library{Driver, Runtime, BlasLt, ML}

// File is the name of the library's file without a version.
func (l Library) File() string { return "lib" + string(l) + ".so" }

// Required is true where nothing works without the library.
func (l Library) Required() bool { return l == Runtime || l == Driver }

// Symbols finds C functions.
type Symbols interface {
	// Symbol is the address of a function of a library, 0 where there is none.
	Symbol(lib Library, name string) uintptr
}

// Handles of CUDA objects and addresses in device memory. Zero is none; the
// zero Stream is CUDA's default stream.
type (
	// DevicePtr is an address in device memory.
	DevicePtr uintptr
	// Stream is a cudaStream_t, which is libcuda's CUstream too.
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

// CUDA holds the bound functions of the libraries. There is nothing to close.
type CUDA struct {
	runtime runtimeFunctions
	driver  driverFunctions
	blasLt  *Blas
	nvml    *NVML

	hostMemory hostMemory
}

// New binds the functions of the libraries behind s. It touches no device. Where
// functions of Runtime or Driver are missing, the error is an *Error that is
// ErrMissing and names them all; BlasLt and ML may be absent.
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

// BlasLt is libcublasLt, nil where it is absent.
func (c *CUDA) BlasLt() *Blas { return c.blasLt }

// NVML is libnvidia-ml, nil where it is absent.
func (c *CUDA) NVML() *NVML { return c.nvml }

// binder looks up the functions of one library and remembers which it lacks.
type binder struct {
	symbols Symbols
	library Library
	texts   *describers
	asked   int
	missing []string
}

// need binds a function without which the library is not bound.
func (b *binder) need(name string) function {
	f := b.probe(name)
	b.asked++
	if f.addr == 0 {
		b.missing = append(b.missing, name)
	}
	return f
}

// probe binds a function that may be missing, in which case its address is 0.
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
