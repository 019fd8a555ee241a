package emu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebitengine/purego"

	"mt/cudart"
)

// A callback is a C function pointer that calls Go. purego lets a process create 2000 callbacks and
// cannot free any, so drivers cannot each have their own. Callbacks belong to slots instead. A slot
// creates a callback when its C function is first requested, and serves one driver after the other.

// maxOpen is the number of drivers that can be open at the same time.
const maxOpen = 18

// slot is the set of callbacks of one open driver.
type slot struct {
	driver atomic.Pointer[Driver]
	addrs  []uintptr // by symbol index; 0: not requested yet
}

var slots = struct {
	sync.Mutex
	made int
	free chan *slot // idle slots, first in, first out; capacity for all slots
}{free: make(chan *slot, maxOpen)}

// class is the kind of work of a C function, and so decides how it fails if Options.FailCall
// selects it.
type class uint8

const (
	plain      class = iota // does nothing and returns an error
	release                 // releases the object all the same, and returns an error
	waits                   // waits all the same, and returns an error
	prologue                // does nothing and returns an error; a later release may depend on it (see Live)
	infallible              // cannot fail
)

// need is a condition for the success of a C function, such as a device or a current context.
type need uint8

const (
	needNothing need = iota
	needDevice       // a device and a recent enough driver
	needRuntime      // like needDevice; libcudart makes the primary context current
	needInit         // a call of cuInit before
	needContext      // a call of cuInit before, and a current context
	needCurrent      // a current context, from libcuda or libcudart
)

// symbol is one C function that the emulator provides.
type symbol struct {
	lib   cudart.Library
	name  string
	class class
	need  need
	bind  func(c caller) any // returns the Go function with the C function's parameters
	index uint16
}

// code returns cuda, blas or ml, whichever is the status code for the library that the symbol
// belongs to.
func (s *symbol) code(cuda, blas, ml int32) int32 {
	switch s.lib {
	case cudart.BlasLt:
		return blas
	case cudart.ML:
		return ml
	}
	return cuda
}

// symbols are all C functions. byName finds them by "library.name".
var (
	symbols []*symbol
	byName  = map[string]*symbol{}
)

func init() {
	for _, list := range [][]symbol{runtimeSymbols(), driverSymbols(), blasSymbols(), mlSymbols()} {
		for i := range list {
			s := &list[i]
			s.index = uint16(len(symbols))
			symbols = append(symbols, s)
			byName[string(s.lib)+"."+s.name] = s
		}
	}
}

// Symbol returns the address of a C function; 0 if the library has no such function or is not installed.
func (d *Driver) Symbol(lib cudart.Library, name string) uintptr {
	s := byName[string(lib)+"."+name]
	if s == nil || lib == cudart.Runtime && d.opt.WithoutRuntime || lib == cudart.BlasLt && d.opt.WithoutBlasLt || lib == cudart.ML && d.opt.WithoutML ||
		name == "cuTensorMapEncodeTiled" && d.opt.DriverVersion < tensorMapSince {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0
	}
	if d.slot == nil {
		d.slot = takeSlot(d)
	}
	if d.slot.addrs[s.index] == 0 {
		d.slot.addrs[s.index] = purego.NewCallback(s.bind(caller{d.slot, s}))
	}
	return d.slot.addrs[s.index]
}

// takeSlot takes a free slot for d. If too many drivers are open, it waits up to a minute until one
// is closed, so that parallel tests take turns. Then it panics, since some driver is probably never
// closed.
func takeSlot(d *Driver) *slot {
	s := freeSlot()
	if s == nil {
		select {
		case s = <-slots.free:
		case <-time.After(time.Minute):
			panic(fmt.Sprintf("emu: %d drivers are open; close some", maxOpen))
		}
	}
	s.driver.Store(d)
	return s
}

// freeSlot returns a free slot, or nil if all are in use. It creates the first few slots before it
// reuses any. So a late call to a closed driver rarely reaches another driver.
func freeSlot() *slot {
	slots.Lock()
	defer slots.Unlock()
	if slots.made >= 4 {
		select {
		case s := <-slots.free:
			return s
		default:
		}
	}
	if slots.made == maxOpen {
		return nil
	}
	slots.made++
	return &slot{addrs: make([]uintptr, len(symbols))}
}

// unbind gives the slot of a closed driver back, for the next driver.
func (d *Driver) unbind() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slot != nil {
		d.slot.driver.Store(nil)
		slots.free <- d.slot
		d.slot = nil
	}
}

// caller identifies one callback by its slot and its C function. The driver that has the slot
// handles the call.
type caller struct {
	slot   *slot
	symbol *symbol
}

// do runs f for the slot's driver, with d.mu held, and returns the status code for C. It counts the
// call, and makes it fail if the options or the driver's state say so. If no driver has the slot,
// the call fails as after the end of the process.
func (c caller) do(f func(d *Driver) int32) int32 {
	d := c.slot.driver.Load()
	if d == nil {
		return c.symbol.code(errDeinitialized, blasNotInitialized, mlUninitialized)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	code, asIf := d.begin(c.symbol)
	if code == 0 {
		code = f(d)
	} else if asIf && (c.symbol.class == release || c.symbol.class == waits) {
		f(d)
	}
	if code != 0 && c.symbol.lib == cudart.Runtime && c.symbol.class != infallible {
		d.thread().last = code
	}
	return code
}

// thread returns CUDA's state of the calling OS thread. Go runs a callback on the thread that C
// called it on. d.mu is held.
func (d *Driver) thread() *thread {
	id := threadID()
	t := d.threads[id]
	if t == nil {
		t = &thread{}
		d.threads[id] = t
	}
	return t
}
