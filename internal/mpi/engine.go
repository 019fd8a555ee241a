package mpi

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// engine owns MPI: its goroutine calls it, and nobody else does.
type engine struct {
	lib  *library
	rank int // -1 until it is known

	mu    sync.Mutex
	todo  []func(error) // run by the goroutine, in order
	ended bool          // MPI was finalized, by the goroutine: nothing is taken any more
	wake  chan struct{}

	flying []*flight // begun and not done; only the goroutine touches it
	lost   []*flight // failed: MPI may still use their memory
}

// flight is an operation that was begun. It keeps the memory that MPI has.
type flight struct {
	handles []uint64 // of the requests, a word for each
	open    []int    // the requests that are not complete, by their places in handles
	calls   []string // the functions that made the requests
	keep    []any
	done    func(error)
}

// errEnded is the error of operations that come after MPI was finalized.
var errEnded = errors.New("MPI was finalized")

// How the goroutine waits for what is under way: it tests without a rest at first,
// since a small message takes some microseconds, and then with rests in between, to
// leave the core to others. While it rests a network may fill its buffers.
const (
	eagerTests = 200
	restMicros = 50
)

func newEngine(l *library) *engine {
	e := &engine{lib: l, rank: -1, wake: make(chan struct{}, 1)}
	go e.run()
	return e
}

// post lets the goroutine run f, after what was posted before. It never blocks. It
// returns false, and f is not run, where MPI was finalized. Where that has come between, f
// gets errEnded and must not call MPI.
func (e *engine) post(f func(error)) bool {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return false
	}
	e.todo = append(e.todo, f)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default: // it is awake
	}
	return true
}

// do lets the goroutine run f, which may block in MPI, and waits for it. It must not
// be called from functions that the goroutine runs.
func (e *engine) do(f func() error) error {
	done := make(chan error, 1)
	posted := e.post(func(err error) {
		if err == nil {
			err = f()
		}
		done <- err
	})
	if !posted {
		return errEnded
	}
	return <-done
}

// end notes, on the goroutine, that MPI was finalized. What others have posted while
// MPI_Finalize ran is told so.
func (e *engine) end() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
}

// run is the goroutine. It never leaves its thread, which MPI_Init_thread makes the
// main thread of MPI.
func (e *engine) run() {
	runtime.LockOSThread()
	for idle := 0; ; {
		switch {
		case e.runTodo() || e.test():
			idle = 0
		case e.isEnded():
			return
		case len(e.flying) == 0:
			<-e.wake
		case idle < eagerTests:
			idle++
			runtime.Gosched()
		default:
			nap(restMicros)
		}
	}
}

func (e *engine) isEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// runTodo runs what was posted, and says whether there was anything.
func (e *engine) runTodo() bool {
	e.mu.Lock()
	todo := e.todo
	e.todo = nil
	e.mu.Unlock()
	for _, f := range todo {
		if e.ended {
			f(errEnded)
		} else {
			f(nil)
		}
	}
	return len(todo) > 0
}

// test asks for every request that is under way whether it is complete, calls the
// functions of flights that are, and says whether any was.
func (e *engine) test() (any bool) {
	var still []*flight
	for _, f := range e.flying {
		err := e.testOne(f)
		if err == nil && len(f.open) > 0 {
			still = append(still, f)
			continue
		}
		any = true
		e.land(f, err)
	}
	e.flying = still // what the functions have begun is in todo
	return any
}

// testOne takes out of f.open what is complete.
func (e *engine) testOne(f *flight) error {
	open := f.open[:0]
	for _, at := range f.open {
		err := e.call(&e.lib.test, addressOfHandle(&f.handles[at]), e.lib.out(0), e.lib.constants.statusIgnore)
		if err != nil {
			return fmt.Errorf("%s: %w", f.calls[at], err)
		}
		if e.lib.int(0) == 0 {
			open = append(open, at)
		}
	}
	f.open = open
	return nil
}

// call calls one of MPI's functions; its error knows the rank.
func (e *engine) call(f *function, args ...uintptr) error {
	err := e.lib.call(f, args...)
	var failed *Error
	if errors.As(err, &failed) {
		failed.Rank = e.rank
	}
	return err
}

// newFlight has room for n requests. keep is the memory that MPI is given.
func newFlight(n int, done func(error), keep ...any) *flight {
	return &flight{handles: make([]uint64, n), keep: keep, done: done}
}

// begin calls a function that makes a request; its last argument, the address for the
// request's handle, is added here.
func (e *engine) begin(f *flight, call *function, args ...uintptr) error {
	at := len(f.calls)
	if err := e.call(call, append(args, addressOfHandle(&f.handles[at]))...); err != nil {
		return err
	}
	f.calls, f.open = append(f.calls, call.name), append(f.open, at)
	return nil
}

// fly takes over a flight whose requests were begun. err is that of begin.
func (e *engine) fly(f *flight, err error) {
	if err != nil || len(f.open) == 0 {
		e.land(f, err)
		return
	}
	e.flying = append(e.flying, f)
}

// land ends a flight.
func (e *engine) land(f *flight, err error) {
	if err != nil {
		e.lost = append(e.lost, f)
	}
	f.done(err)
}
