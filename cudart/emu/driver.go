package emu

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"mt/base/parallel"
	"mt/cudart"
)

// Driver is one emulated driver with its GPUs. It implements cudart.Symbols. At
// most 18 drivers can be open at the same time; Close ends one.
type Driver struct {
	opt    Options
	number uint16 // in its handles
	rng    *rand.Rand

	mu      sync.Mutex
	changed *sync.Cond // signalled when an awaited operation is done
	work    *sync.Cond // signalled when there may be something to run
	started bool       // the scheduler runs
	closed  bool
	ended   chan struct{} // the scheduler has returned
	slot    *slot         // nil until the first Symbol
	pool    *parallel.Pool

	// Calls and errors.
	calls      []uint16 // indices into symbols
	faults     []error
	moreFaults int
	sticky     int32 // code of the error that stays until the process ends
	hangEnded  bool  // see EndHang
	lost       bool

	// Threads and contexts.
	threads     map[int]*thread
	initialised bool // cuInit was called
	gpus        []*gpu
	excused     bool // contexts, modules and handles of cublasLt could not be given back
	mlUsers     int

	objects map[uint64]any
	lastID  [kinds]uint64

	// Memory.
	chunks        [maxChunks]atomic.Pointer[chunk]
	mallocs       int    // calls of cudaMalloc for any bytes
	buffers       uint64 // the newest buffer
	pinned        []*pinned
	shown         atomic.Pointer[[]*pinned] // what kernels reach of pinned; nil: nothing
	locked        int64                     // bytes registered
	registrations int                       // how often memory was registered
	pinnedID      int
	pageables     int
	inPlace       int // products so far by an algorithm that sums in place

	// Work.
	streams  []*stream // that have work or can still get some
	ids      int       // streams made so far
	seq      uint64    // operations enqueued so far
	running  *op
	touched  map[launchKey][]span // of the scheduler's goroutine; see Options.OrderOnly
	waiting  int                  // threads that wait for work
	credit   int                  // operations that Random runs though nobody waits
	hanging  int                  // launches so far that Options.HangAt counts
	crashing int                  // launches so far that Options.CrashAt counts
	host     clock
	hostVer  uint64
}

// thread is the state that CUDA keeps for an OS thread.
type thread struct {
	context uint64
	gpu     *gpu  // of the call under way, if it needs a context
	last    int32 // cudaGetLastError
}

var numbers atomic.Uint32

// New starts a driver.
func New(o Options) *Driver {
	d := &Driver{opt: o.withDefaults(), number: uint16(numbers.Add(1)), threads: map[int]*thread{},
		objects: map[uint64]any{}, touched: map[launchKey][]span{}, ended: make(chan struct{})}
	for i := range d.opt.Devices {
		d.gpus = append(d.gpus, &gpu{ordinal: i})
	}
	d.rng = rand.New(rand.NewPCG(o.Seed, 0x6d74))
	d.changed, d.work = sync.NewCond(&d.mu), sync.NewCond(&d.mu)
	return d
}

var _ cudart.Symbols = (*Driver)(nil)

// Calls is the number of C calls so far that could fail. FailCall and LoseDeviceAt
// count these calls.
func (d *Driver) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

// CallName is the name of the i-th of those calls, counted from 1; "" where there
// was none.
func (d *Driver) CallName(i int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i < 1 || i > len(d.calls) {
		return ""
	}
	return symbols[d.calls[i-1]].name
}

// PageableCopies is how many asynchronous copies had host memory that is not
// pinned, so that CUDA copied by way of a buffer and the host waited.
func (d *Driver) PageableCopies() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pageables
}

// Registrations returns how many ranges of host memory were registered so far, and how many of them still are.
func (d *Driver) Registrations() (made, left int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.pinned {
		if p.owned == nil {
			left++
		}
	}
	return d.registrations, left
}

// begin counts a call. code is the code with which the call fails before it does
// anything, 0 where it goes on. asIf is true for a call that waits or gives
// something back, which does so in spite of the code. d.mu is held.
func (d *Driver) begin(s *symbol) (code int32, asIf bool) {
	if s.class == infallible {
		return 0, false
	}
	d.calls = append(d.calls, s.index)
	n := len(d.calls)
	if d.opt.LoseDeviceAt > 0 && n >= d.opt.LoseDeviceAt && !d.lost {
		d.lost, d.excused = true, true
		d.sticky = int32(d.opt.LostCode)
		d.cancel()
	}
	if d.lost {
		return s.code(d.sticky, blasFailed, mlLost), true
	}
	if code := d.admit(s); code != 0 {
		return code, false
	}
	if n == d.opt.FailCall {
		d.excused = d.excused || s.class == prologue
		return s.code(int32(d.opt.FailCode), blasInternalError, mlUnknown), true
	}
	if d.opt.Mode == Random && d.rng.IntN(2) == 0 {
		d.credit += 1 + d.rng.IntN(3)
		d.work.Signal()
	}
	if d.sticky != 0 && (s.need == needRuntime || s.need == needContext || s.need == needCurrent) {
		return s.code(d.sticky, blasFailed, 0), true
	}
	return 0, false
}

// admit is the code with which a call is refused because of the state of the device
// or the thread, or 0. d.mu is held.
func (d *Driver) admit(s *symbol) int32 {
	switch s.need {
	case needDevice, needRuntime:
		if d.opt.NoDevice {
			return s.code(errNoDevice, blasNotInitialized, 0)
		}
		if d.opt.DriverTooOld && s.lib != cudart.Driver {
			return s.code(errInsufficientDriver, blasNotInitialized, 0)
		}
		if s.need == needRuntime {
			d.useRuntime(s)
		}
	case needCurrent: // as cuBLAS does since CUDA 12, where some of its kernels go through libcuda
		g := d.current()
		if g == nil {
			d.fault(Context, "%s on a thread without a current context", s.name)
			return s.code(errInvalidContext, blasFailed, 0)
		}
		d.thread().gpu = g
	case needInit, needContext:
		if !d.initialised {
			d.fault(Context, "%s before cuInit", s.name)
			return errNotInitialized
		}
		if s.need == needContext && d.thread().context == 0 {
			d.fault(Context, "%s on a thread without a current context", s.name)
			return errInvalidContext
		}
		if s.need == needContext && d.current() == nil {
			d.fault(Context, "%s on a thread whose current context was destroyed", s.name)
			return errContextIsDestroyed
		}
		d.thread().gpu = d.current()
	}
	return 0
}

// forget drops everything that holds memory.
func (d *Driver) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.buffers/chunkSize + 1 {
		d.chunks[i].Store(nil)
	}
	d.buffers, d.pinned, d.streams, d.objects = 0, nil, nil, map[uint64]any{}
	d.show()
}
