package emu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebitengine/purego"

	"mt/cudart"
)

// A process can make 2000 callbacks and free none. So they belong to slots, made
// as they are asked for, and a slot serves one driver after the other.

// maxOpen is how many drivers can be open at a time.
const maxOpen = 18

// slot is the callbacks of one open driver.
type slot struct {
	driver atomic.Pointer[Driver]
	addrs  []uintptr // by index of the symbol, 0 until asked for
}

var slots = struct {
	sync.Mutex
	made int
	free chan *slot // holds all there can be; first in, first out
}{free: make(chan *slot, maxOpen)}

// class says what a call does when it was told to fail.
type class uint8

const (
	plain      class = iota // it does nothing
	release                 // it gives back all the same
	waits                   // it waits all the same
	prologue                // nothing, and a call that gives back may need it
	infallible              // it cannot fail
)

// need says what a call needs before it does anything.
type need uint8

const (
	needNothing need = iota
	needDevice       // a device, and a driver new enough
	needRuntime      // that, and libcudart makes the primary context current
	needInit         // cuInit
	needContext      // that, and a current context
	needCurrent      // a current context, whoever made it so
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

// code is the code of the library that the symbol is in.
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

// Symbol is the address of a C function, 0 where the library has none of that
// name or is not installed.
func (d *Driver) Symbol(lib cudart.Library, name string) uintptr {
	s := byName[string(lib)+"."+name]
	if s == nil || lib == cudart.BlasLt && d.opt.WithoutBlasLt || lib == cudart.ML && d.opt.WithoutML {
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

// takeSlot is a free slot, now d's. Where too many drivers are open it waits for
// one to be closed, for a minute: parallel tests take turns, and a leak is told.
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

// freeSlot is a slot without waiting, nil where there is none. The first few are
// made before any is used again, so that a call after Close rarely reaches
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

// caller is a C function of a slot.
type caller struct {
	slot   *slot
	symbol *symbol
}

// do runs a call on the slot's driver, with its lock held, and is the code that
// C gets.
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

// thread is the state of the OS thread that calls: a callback does not change
// threads. d.mu is held.
func (d *Driver) thread() *thread {
	id := threadID()
	t := d.threads[id]
	if t == nil {
		t = &thread{}
		d.threads[id] = t
	}
	return t
}
