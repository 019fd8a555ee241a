package emu

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"mt/base/parallel"
	"mt/cudart"
)

// Driver is one emulated driver with its GPUs. It implements cudart.Symbols. At most 18 drivers can be open at the
// same time. Close closes one.
type Driver struct {
	opt    Options
	timed  bool   // events report Options.ProductTimes, not real time
	number uint16 // part of all handles that the driver returns
	rng    *rand.Rand

	mu      sync.Mutex
	changed *sync.Cond // signalled when an awaited operation completes
	work    *sync.Cond // signalled when an operation may be ready to run
	started bool       // the scheduler runs
	closed  bool
	ended   chan struct{} // closed when the scheduler returns
	slot    *slot         // nil until the first Symbol
	pool    *parallel.Pool

	// Calls and errors.
	calls      []uint16 // indices into symbols
	faults     []error
	moreFaults int
	sticky     int32 // error code that all later calls return
	hangEnded  bool  // EndHang was called
	lost       bool

	// Threads and contexts.
	threads     map[int]*thread
	initialised bool // cuInit was called
	gpus        []*gpu
	excused     bool // the program could not release contexts, modules and cublasLt handles; see Live
	mlUsers     int

	objects map[uint64]any
	lastID  [kinds]uint64

	// Memory.
	chunks        [maxChunks]atomic.Pointer[chunk]
	mallocs       int    // number of cudaMalloc calls with a size above 0
	buffers       uint64 // index of the newest buffer
	pinned        []*pinned
	shown         atomic.Pointer[[]*pinned] // copy of pinned that kernels may read; nil: kernels reach no host memory
	locked        int64                     // registered bytes
	registrations int                       // number of registrations so far
	pinnedID      int
	pageables     int
	inPlace       int // number of products so far that were summed in place

	// Work.
	streams  []*stream // streams with queued work or that can still get work
	ids      int       // number of streams created so far
	seq      uint64    // number of operations enqueued so far
	running  *op
	touched  map[launchKey][]span // used by the scheduler's goroutine only: accesses recorded for Options.OrderOnly
	waiting  int                  // number of threads that wait for work
	credit   int                  // number of operations that Random may run although no thread waits
	hanging  int                  // number of launches counted for Options.HangAt
	crashing int                  // number of launches counted for Options.CrashAt
	host     clock
	hostVer  uint64
}

// thread is the state that CUDA keeps for each OS thread.
type thread struct {
	context uint64
	gpu     *gpu  // device of the current call, if the call needs a context
	last    int32 // code that cudaGetLastError returns
}

var numbers atomic.Uint32

// New creates a driver.
func New(o Options) *Driver {
	d := &Driver{opt: o.withDefaults(), timed: o.ProductTimes != nil, number: uint16(numbers.Add(1)), threads: map[int]*thread{},
		objects: map[uint64]any{}, touched: map[launchKey][]span{}, ended: make(chan struct{})}
	for i := range d.opt.Devices {
		d.gpus = append(d.gpus, &gpu{ordinal: i})
	}
	d.rng = rand.New(rand.NewPCG(o.Seed, 0x6d74))
	d.changed, d.work = sync.NewCond(&d.mu), sync.NewCond(&d.mu)
	return d
}

var _ cudart.Symbols = (*Driver)(nil)

// Calls returns the number of fallible C calls so far. FailCall and LoseDeviceAt use the same count.
func (d *Driver) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

// CallName returns the name of the i-th call that Calls counts, from 1 on; "": there was none.
func (d *Driver) CallName(i int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i < 1 || i > len(d.calls) {
		return ""
	}
	return symbols[d.calls[i-1]].name
}

// PageableCopies returns the number of asynchronous copies with pageable host memory. CUDA stages such copies in a
// buffer and blocks the host.
func (d *Driver) PageableCopies() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pageables
}

// Registrations returns the number of cudaHostRegister calls so far, and the number of ranges still registered.
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

// begin is called at the start of every C call. It counts the call and decides whether it fails. If
// code is not 0, the call must return it. If asIf is true and the function waits or releases
// something, the call must still do its work, as in CUDA. d.mu is held.
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

// admit returns the code with which CUDA rejects a call because of the state of the device or the
// calling thread, such as a missing context. It returns 0 if the call is allowed. d.mu is held.
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
	case needCurrent: // like cuBLAS since CUDA 12, some of whose kernels are launched through libcuda
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

// forget drops all references to emulated memory and objects of a closed driver, so that Go can free them.
func (d *Driver) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.buffers/chunkSize + 1 {
		d.chunks[i].Store(nil)
	}
	d.buffers, d.pinned, d.streams, d.objects = 0, nil, nil, map[uint64]any{}
	d.show()
}
