package emu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebitengine/purego"

	"mt/cudart"
)

// A process can make 2000 callbacks and can free none. Therefore callbacks belong
// to slots. A slot makes a callback when its symbol is first asked for, and serves
// one driver after the other.

// maxOpen is how many drivers can be open at a time.
const maxOpen = 18

// slot is the set of callbacks that one open driver uses.
type slot struct {
	driver atomic.Pointer[Driver]
	addrs  []uintptr // by index of the symbol, 0 until asked for
}

var slots = struct {
	sync.Mutex
	made int
	free chan *slot // has room for all slots there can be; first in, first out
}{free: make(chan *slot, maxOpen)}

// class says what a call does when it is made to fail.
type class uint8

const (
	plain      class = iota // it does nothing and fails
	release                 // it gives back all the same, and fails
	waits                   // it waits all the same, and fails
	prologue                // it does nothing, and a later call that gives something back may need it
	infallible              // it cannot fail
)

// need says what must be there before a call does anything.
type need uint8

const (
	needNothing need = iota
	needDevice       // a device, and a driver new enough
	needRuntime      // the same, and libcudart makes the primary context current
	needInit         // cuInit
	needContext      // the same, and a current context
	needCurrent      // a current context, whoever made it current
)

// symbol is one C function.
type symbol struct {
	lib   cudart.Library
	name  string
	class class
	need  need
	bind  func(c caller) any // the Go function with the C function's arguments
	index uint16
}

// code picks the code of the library that the symbol is in.
func (s *symbol) code(cuda, blas, ml int32) int32 {
	switch s.lib {
	case cudart.BlasLt:
		return blas
	case cudart.ML:
		return ml
	}
	return cuda
}

// symbols are all C functions, byName finds them.
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

// Symbol is the address of a C function, 0 where the library has no function of
// that name or is not installed.
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

// takeSlot takes a free slot for d. Where too many drivers are open it waits up to
// a minute for one to be closed, so that parallel tests take turns and a driver
// that is never closed is reported.
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

// freeSlot is a free slot, nil where it would have to wait. The first few slots are
// made before any is used a second time, so that a call after Close rarely reaches
// another driver.
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

// unbind gives the slot back.
func (d *Driver) unbind() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slot != nil {
		d.slot.driver.Store(nil)
		slots.free <- d.slot
		d.slot = nil
	}
}

// caller is a C function of a slot: what its callback knows when it is called.
type caller struct {
	slot   *slot
	symbol *symbol
}

// do makes a call on the slot's driver, with its lock held, and returns the code
// that C gets.
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

// thread is the state of the calling OS thread, which a callback does not leave.
// d.mu is held.
func (d *Driver) thread() *thread {
	id := threadID()
	t := d.threads[id]
	if t == nil {
		t = &thread{}
		d.threads[id] = t
	}
	return t
}
