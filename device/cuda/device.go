package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mt/base/accounts"
	"mt/base/human"
	"mt/cudart"
	"mt/device"
	"mt/device/cuda/kernels"
)

// Options configure a device.
type Options struct {
	// CUDA has the CUDA libraries that cudart has loaded.
	CUDA *cudart.CUDA
	// Ordinal is the GPU's number; 0 is the first GPU that CUDA_VISIBLE_DEVICES shows.
	Ordinal int
	// MemoryLimit is the budget of device memory in bytes, the CUDA context included. 0: all free
	// memory of the card, less a reserve.
	MemoryLimit int64
	// Choices decide the algorithms of cuBLASLt; nil: its first proposals.
	Choices *Choices
	// Watchdog makes mt split work into short launches, as if the driver reported a watchdog that
	// ends long ones.
	Watchdog bool
	// PinPiece is how many bytes of host memory one call of the driver pins, a multiple of the page
	// size. 0: 256 MiB.
	PinPiece int64
	// Page is the size of the host's pages in bytes; 0: the system's. Tests set it.
	Page int64
	// Pinning reports progress: it is called with the bytes that a call of Register has processed
	// so far, and with their total. No two calls of it run at the same time. nil: no reports.
	Pinning func(done, total int64)
	// Available returns how many bytes of host memory a process can still allocate, or false if the
	// system does not say. An integrated GPU uses host memory, and CUDA would count the page cache
	// as used. nil: use CUDA's numbers.
	Available func() (int64, bool)
	// Hang is called with a report about work that has not ended after a hundred times its longest
	// expected time, and again if the work ends after all. A goroutine of the device calls it. nil:
	// the text goes to Notes.
	Hang func(text string)
	// OwnMatMul makes mt's own kernels compute matrix products even if there is cuBLASLt.
	OwnMatMul bool
}

// The oldest driver and GPU that can run mt's kernels.
const (
	leastDriver     = 12000 // CUDA 12.0, the first that loads PTX 8.0
	leastCapability = 80    // sm_80: bf16 in tensor cores, cp.async
)

// dev implements device.Device on one GPU. Its calls run in the GPU's primary context, on the caller's thread.
type dev struct {
	opts Options
	cuda *cudart.CUDA
	name string
	// driver is the newest CUDA version that the driver supports, 12040 for 12.4. The driver's
	// compiler for PTX has the same version.
	driver int
	// capability is the compute capability, 80 for 8.0. sm90a: attention uses kernels for sm_90a.
	capability int
	sm90a      bool
	context    cudart.Context
	blas       blas
	own        atomic.Int64 // products computed by mt's own kernels
	unified    atomic.Bool  // the device uses host memory in place; see InPlace
	// pace is a rate in FLOP/s that the device reaches in any case, by operand type. Expected times
	// follow from it.
	pace [2]float64
	// mostWork is the largest number of FLOPs that one launch should have, by operand type, so that
	// the driver's watchdog does not end it. 0: no limit.
	mostWork [2]float64
	// processors is the number of multiprocessors; 0: unknown.
	processors int

	modulesMu sync.Mutex // held while a module loads
	modules   map[string]cudart.Module

	functionsMu sync.RWMutex
	functions   map[functionName]cudart.Function

	allocating sync.Mutex // held while device memory is allocated

	peersMu sync.RWMutex
	peers   map[int]bool // by ordinal: devices whose memory this device can access

	mu          sync.Mutex
	blocks      map[uintptr]*block
	registered  map[uintptr][]byte
	spans       []span // ranges of pinned host memory, by address
	pinnings    []*pinning
	usage       device.Usage
	scratch     []device.Mem // scratch memory that no stream uses
	events      []cudart.Event
	allEvents   []cudart.Event
	streams     []*stream // open streams
	closed      bool
	notes       []string
	noted       map[string]bool // the subjects that noteOnce has noted
	slower      map[slower]bool
	fallbacks   []string       // products that cuBLASLt refused; see Fallbacks
	late        []error        // the errors that Close returns
	leaving     atomic.Bool    // LeavePinned was called
	beside      func(*piece)   // nil except in tests: called before a piece is pinned beside the device's work
	lookEvery   time.Duration  // interval between calls of look
	looking     sync.WaitGroup // the goroutine that calls look
	lookingEnds chan struct{}  // ends the goroutine; nil: it does not run
}

// blas has the library cuBLASLt, and a description for each shape of matrix product that cuBLASLt
// has computed.
type blas struct {
	dev      *dev
	lib      *cudart.Blas // nil if mt's own kernels compute all products
	platform Platform     // platform of lib
	choices  *Choices
	context  cudart.Context
	handle   cudart.BlasHandle
	mu       sync.Mutex
	products map[productKey]*product
}

// New opens a GPU. If the GPU, the driver or a library is unusable, the error names what is
// missing.
func New(o Options) (_ device.Device, err error) {
	if o.Ordinal < 0 {
		return nil, fmt.Errorf("cuda: device %d: GPUs are counted from 0", o.Ordinal)
	}
	if o.MemoryLimit < 0 {
		return nil, fmt.Errorf("cuda: memory limit %d: it may not be negative", o.MemoryLimit)
	}
	d := &dev{opts: o, cuda: o.CUDA, modules: map[string]cudart.Module{}, functions: map[functionName]cudart.Function{},
		blocks: map[uintptr]*block{}, registered: map[uintptr][]byte{}, noted: map[string]bool{}, slower: map[slower]bool{}, peers: map[int]bool{}, blas: blas{products: map[productKey]*product{}}}
	d.blas.dev, d.blas.choices, d.lookEvery = d, o.Choices, lookEvery
	if o.Choices == nil {
		d.blas.choices = NewChoices(false, nil)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cuda: %w", err)
			if undo := d.Close(); undo != nil {
				err = fmt.Errorf("%w; %w", err, undo)
			}
		}
	}()
	if err := d.check(); err != nil {
		return nil, err
	}
	if err := d.open(); err != nil {
		return nil, d.crowded(err)
	}
	return d, nil
}

// crowded is called with an error of opening the GPU. If the card had too little free memory, it
// adds the likely reason: another process uses the card.
func (d *dev) crowded(err error) error {
	var counted *device.OutOfMemory
	if !errors.Is(err, cudart.ErrOutOfMemory) || errors.As(err, &counted) {
		return err
	}
	return fmt.Errorf("%w: the %s has no room for mt's kernels; is another process using it (nvidia-smi lists them)?", err, d.name)
}

// check returns an error if the GPU or the driver cannot run the kernels.
func (d *dev) check() error {
	driver, err := d.cuda.DriverVersion()
	if err != nil {
		return err
	}
	count, err := d.cuda.DeviceCount()
	if driver == 0 {
		return fmt.Errorf("%w: libcuda is there and the NVIDIA driver is not loaded (%v)", cudart.ErrNoDevice, err)
	}
	if errors.Is(err, cudart.ErrDriverTooOld) {
		runtime, _ := d.cuda.RuntimeVersion() // 0 after an error, and then the message leaves the version out
		return fmt.Errorf("%w: the driver serves CUDA %s and libcudart is of CUDA %s: update the driver, or name a folder with an older libcudart in MT_CUDA_LIBS",
			err, cudaVersion(driver), cudaVersion(runtime))
	}
	if err != nil {
		return err
	}
	if count == 0 {
		return fmt.Errorf("%w: cudaGetDeviceCount finds none (does CUDA_VISIBLE_DEVICES hide them?)", cudart.ErrNoDevice)
	}
	if d.opts.Ordinal >= count {
		return fmt.Errorf("%w %d: cudaGetDeviceCount finds %d, which are counted from 0 (does CUDA_VISIBLE_DEVICES hide others?)", cudart.ErrNoDevice, d.opts.Ordinal, count)
	}
	if d.name, err = d.cuda.DeviceName(d.opts.Ordinal); err != nil {
		return err
	}
	if driver < leastDriver {
		return fmt.Errorf("%w: the driver of the %s serves CUDA %s, mt needs %s: update it to 525 or newer",
			cudart.ErrDriverTooOld, d.name, cudaVersion(driver), cudaVersion(leastDriver))
	}
	major, err := d.cuda.DeviceAttribute(cudart.AttrComputeMajor, d.opts.Ordinal)
	if err != nil {
		return err
	}
	minor, err := d.cuda.DeviceAttribute(cudart.AttrComputeMinor, d.opts.Ordinal)
	if err != nil {
		return err
	}
	d.driver, d.capability = driver, 10*major+minor
	d.sm90a = d.RunsSM90a()
	d.noteSM90a()
	if d.capability < leastCapability {
		return fmt.Errorf("%w: the %s has compute capability %d.%d, mt needs %d.%d (Ampere, 2020) or newer",
			cudart.ErrNotSupported, d.name, major, minor, leastCapability/10, leastCapability%10)
	}
	return nil
}

// cudaVersion formats a version: 12040 is 12.4.
func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// open creates the CUDA context, loads the first kernels and sets the budget of device memory.
func (d *dev) open() (err error) {
	before, visible, err := d.freeBefore()
	if err != nil {
		return err
	}
	if d.context, err = d.cuda.PrimaryContext(d.opts.Ordinal); err != nil {
		return err
	}
	free, total, err := d.cuda.MemGetInfo(d.context)
	if err != nil {
		return err
	}
	// before is the free memory that NVML reported. It is unusable if NVML sees far more memory
	// than CUDA: on a partitioned card (MIG) CUDA sees one instance, and NVML sees the whole card.
	if before == 0 || visible-total > total/8 {
		before = min(total, free+AssumedContext)
	}
	if d.processors, err = d.cuda.DeviceAttribute(cudart.AttrProcessors, d.opts.Ordinal); err != nil {
		return err
	}
	if err := d.watch(); err != nil {
		return err
	}
	if _, err := d.module(firstModule); err != nil {
		return err
	}
	if err := d.openBlas(); err != nil {
		return err
	}
	if free, _, err = d.cuda.MemGetInfo(d.context); err != nil {
		return err
	}
	if before, free, err = d.ofHost(before, free, total); err != nil {
		return err
	}
	return d.setBudget(before, free, total)
}

// openBlas prepares cuBLASLt for matrix products if it is installed; otherwise mt's own kernels compute them.
func (d *dev) openBlas() error {
	lib := d.cuda.BlasLt()
	switch {
	case d.opts.OwnMatMul:
		return nil
	case lib == nil:
		d.note("no cuBLASLt: matrix products run on mt's own kernels, which are slower (pip install nvidia-cublas brings it; MT_CUDA_LIBS names its folder)")
		return nil
	}
	handle, err := lib.Create(d.context)
	if err != nil {
		return err
	}
	d.blas.platform = Platform{Device: d.name, Driver: d.driver, CuBLASLt: lib.Version()}
	d.blas.lib, d.blas.context, d.blas.handle = lib, d.context, handle
	return nil
}

// AssumedContext is the size in bytes that plans assume for the context, the kernels and the
// libraries' workspaces if there is no GPU to ask.
const AssumedContext = 512 << 20

const (
	leastContext = 192 << 20 // smallest context of any supported GPU
	mostContext  = 2 << 30   // above it, another process must have taken memory meanwhile
	lazyBlas     = 64 << 20  // kernels that cuBLASLt loads at first use
	lazyModule   = 2 << 20   // a module of mt: it needs less than 256 KiB, but CUDA allocates 2 MiB at a time
)

// setBudget sets the limit of device memory. The free bytes are before without the CUDA context and
// free with it. The difference counts as the context's size, together with an estimate for kernels
// that load later. The scratch memory of one stream is allocated at once, so that plans count it as
// used.
func (d *dev) setBudget(before, free, total int64) error {
	context := min(mostContext, max(leastContext, before-free))
	later := lazyModule * int64(len(kernels.Modules())-len(d.modules))
	if d.blas.lib != nil {
		later += lazyBlas
	}
	context += later
	free -= later
	most := min(total, context+free-reserve(total))
	limit := d.opts.MemoryLimit
	if limit == 0 {
		limit = most
	} else if limit > most {
		d.note(fmt.Sprintf("device_memory is %s and the %s has %s to give: that is the budget", human.Bytes(limit), d.name, human.Bytes(most)))
		limit = most
	}
	d.usage.Limit, d.usage.Capacity = limit, total
	if context > limit {
		return &device.OutOfMemory{Purpose: accounts.Context, Requested: context, Limit: limit}
	}
	d.mu.Lock()
	d.count(accounts.Context, context)
	d.mu.Unlock()
	m, err := d.takeScratch()
	if err == nil {
		d.giveScratch(m)
	}
	return err
}

// reserve returns how many bytes of a card with total bytes stay outside the budget. CUDA allocates
// in pieces of 2 MiB, so a hundred large allocations waste up to 200 MiB at their ends.
func reserve(total int64) int64 {
	return min(max(total/50, min(total/8, 256<<20)), 512<<20)
}

// freeBefore returns the free and the total device memory in bytes before the CUDA context exists, as NVML reports
// them. Both are 0 if NVML does not report them.
func (d *dev) freeBefore() (free, total int64, err error) {
	id, err := d.cuda.PCIBusID(d.opts.Ordinal)
	n := d.cuda.NVML()
	if err != nil || n == nil || n.Init() != nil {
		return 0, 0, err
	}
	if gpu, err := n.ByPCI(id); err == nil {
		if t, f, _, err := n.Memory(gpu); err == nil {
			free, total = f, t
		}
	}
	if n.Shutdown() != nil {
		return 0, 0, nil
	}
	return free, total, nil
}

// note adds s to the notes for the user, which Notes returns.
func (d *dev) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, s)
}

// noteOnce adds the text s to the notes for the user. about names the subject of s; there is at
// most one note for each subject.
func (d *dev) noteOnce(about, s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.noted[about] {
		d.noted[about] = true
		d.notes = append(d.notes, s)
	}
}

// fallBack records that cuBLASLt refused a product of this shape, for the list that Fallbacks returns.
func (d *dev) fallBack(shape string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.fallbacks, shape) && len(d.fallbacks) < mostProducts {
		d.fallbacks = append(d.fallbacks, shape)
	}
}

// Fallbacks lists the matrix products that cuBLASLt refused although their tensors are aligned. mt's own kernels
// computed them, more slowly.
func (d *dev) Fallbacks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.fallbacks)
}

// OwnProducts returns the number of matrix products that mt's own kernels have computed so far, because cuBLASLt is
// absent or refused them.
func (d *dev) OwnProducts() int64 { return d.own.Load() }

// CuBLASLt returns the version of the library that computes products, 120402 for 12.4.2; 0: none.
func (d *dev) CuBLASLt() int { return d.blas.platform.CuBLASLt }

// pinHelp is advice for memory that cannot be pinned.
const pinHelp = "a higher limit of locked memory helps (ulimit -l, or --ulimit memlock=-1 of a container)"

// refuse adds a note that the system did not pin host memory because of err. `what` says how much
// memory that is. Each kind of reason is noted once.
func (d *dev) refuse(what string, err error) {
	about, help := "pinning", pinHelp
	if errors.Is(err, cudart.ErrAlreadyRegistered) {
		about, help = "pages", "it shares a page with memory that is pinned"
	}
	d.noteOnce(about, fmt.Sprintf("the system does not pin %s of host memory (%v): copies go through staging memory, slower; %s", what, err, help))
}

// Notes returns messages for the user about this device, such as reasons for lower speed, in the
// order of occurrence. Some appear only during work.
func (d *dev) Notes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.notes...)
}

func (d *dev) Name() string { return d.name }
func (d *dev) Kind() string { return "cuda" }

// regret records an error that the caller at hand may ignore or cannot receive. Close returns it.
func (d *dev) regret(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.late = append(d.late, err)
}

// release calls f, which gives a resource back to CUDA, and records f's error for Close. It does
// not call f again after an error, because the resource is already gone or can never be given back.
func (d *dev) release(f func() error) {
	if err := f(); err != nil {
		d.regret(err)
	}
}

// releaseBy is release for an f that first makes other CUDA calls, such as setting the context. op
// is the C function that gives the resource back. If one of the other calls fails, the resource
// still exists, and releaseBy calls f once more.
func (d *dev) releaseBy(op string, f func() error) {
	for try := range 2 {
		err := f()
		if err == nil {
			return
		}
		if try == 0 {
			d.regret(err)
		}
		var e *cudart.Error
		if errors.As(err, &e) && e.Op == op {
			return
		}
	}
}

// Close releases all memory, events, kernels and the context. It does not wait for a lost device.
// It returns the first error that no other call is sure to have returned, such as an error of Free.
func (d *dev) Close() error {
	d.mu.Lock()
	if n := len(d.streams); n > 0 {
		d.mu.Unlock()
		return fmt.Errorf("cuda: close: %d streams are still open", n)
	}
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.endLooking()
	d.stopPinning(nil)
	d.mu.Lock()
	blocks, registered, events := d.blocks, d.registered, d.allEvents
	d.registered, d.spans, d.allEvents, d.events, d.scratch = map[uintptr][]byte{}, nil, nil, nil, nil
	d.mu.Unlock()
	for _, b := range registered {
		if d.leaving.Load() {
			break
		}
		d.release(func() error { return d.cuda.HostUnregister(d.context, b) })
	}
	for addr, b := range blocks {
		if b.purpose == accounts.HostStaging {
			d.FreeHost(b.host)
		} else {
			d.Free(device.Mem{Addr: addr, Bytes: b.bytes})
		}
	}
	for _, e := range events {
		d.release(func() error { return d.cuda.EventDestroy(d.context, e) })
	}
	d.closeContext()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count(accounts.Context, -d.usage.Now[accounts.Context])
	if len(d.late) > 0 {
		return fmt.Errorf("cuda: %w", d.late[0])
	}
	return nil
}

func (d *dev) closeContext() {
	if lib := d.blas.lib; lib != nil {
		d.blas.mu.Lock()
		d.releaseBy("", d.blas.forget)
		d.blas.mu.Unlock()
		d.releaseBy("cublasLtDestroy", func() error { return lib.Destroy(d.context, d.blas.handle) })
	}
	for _, m := range d.modules {
		d.releaseBy("cuModuleUnload", func() error { return d.cuda.ModuleUnload(d.context, m) })
	}
	if d.context != 0 && !d.leaving.Load() {
		d.releaseBy("cuDevicePrimaryCtxRelease_v2", func() error { return d.cuda.ReleasePrimaryContext(d.opts.Ordinal) })
	}
}
