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
	// CUDA is the bound libraries.
	CUDA *cudart.CUDA
	// Ordinal is which GPU: 0 is the first that CUDA_VISIBLE_DEVICES shows.
	Ordinal int
	// MemoryLimit is the budget in bytes, of which the context is a part. 0 is all
	// that is free on the card, less a reserve.
	MemoryLimit int64
	// Choices say by which algorithms cuBLASLt computes; nil is its first proposals.
	Choices *Choices
	// Watchdog says that launches which take long are ended, also where the driver does not say so.
	Watchdog bool
	// PinPiece is how many bytes of host memory Register pins at once; 0: 256 MiB. It is a multiple of a page's size.
	PinPiece int64
	// Page is the size of the host's pages in bytes; 0: as the system says. Tests set it.
	Page int64
	// Pinning, which may be nil, is told how many bytes a call of Register has dealt with so far, and of how
	// many, one call at a time.
	Pinning func(done, total int64)
	// Available returns how many bytes of the host's memory a process can still take, and false where the system does
	// not say. An integrated GPU has this memory. CUDA would count the page cache as used. nil: CUDA's figures hold.
	Available func() (int64, bool)
	// Hang, which may be nil, is told of work on the device that has not ended after a hundred times what it should take
	// at most, and when it has ended after all, on a goroutine of the device's own. nil: Notes has it.
	Hang func(text string)
	// OwnMatMul has our own kernels compute matrix products even where there is
	// cuBLASLt.
	OwnMatMul bool
}

// What the kernels need.
const (
	leastDriver     = 12000 // CUDA 12.0, the first to load PTX 8.0
	leastCapability = 80    // sm_80: bf16 in tensor cores, cp.async
)

// dev implements device.Device on one GPU. Its calls are made in that GPU's primary
// context, on whatever thread the caller runs.
type dev struct {
	opts Options
	cuda *cudart.CUDA
	name string
	// driver is the CUDA version that the driver serves, 12040 for 12.4; its compiler is of that version.
	driver int
	// capability is the compute capability, 80 for 8.0; sm90a says whether kernels for sm_90a are taken.
	capability int
	sm90a      bool
	context    cudart.Context
	blas       blas
	own        atomic.Int64 // see OwnProducts
	unified    atomic.Bool  // see InPlace
	// pace is how many FLOPs a second the device reaches at least, by the type of operands.
	pace [2]float64
	// mostWork is how many FLOPs a launch should have at most, by the type of its operands; 0: any number.
	mostWork [2]float64

	modulesMu sync.Mutex // held while a module is being loaded
	modules   map[string]cudart.Module

	functionsMu sync.RWMutex
	functions   map[functionName]cudart.Function

	allocating sync.Mutex // held while device memory is being allocated

	peersMu sync.RWMutex
	peers   map[int]bool // by ordinal: the devices whose memory this one has access to

	mu          sync.Mutex
	blocks      map[uintptr]*block
	registered  map[uintptr][]byte
	spans       []span // ranges of pinned host memory, by address
	pinnings    []*pinning
	usage       device.Usage
	scratch     []device.Mem // free scratch memory
	events      []cudart.Event
	allEvents   []cudart.Event
	streams     []*stream // those that are open
	closed      bool
	notes       []string
	noted       map[string]bool // the subjects that noteOnce has noted
	slower      map[slower]bool
	fallbacks   []string       // see Fallbacks
	late        []error        // the errors that Close returns
	leaving     atomic.Bool    // see LeavePinned
	beside      func(*piece)   // nil but in tests: called before a piece is pinned beside what the device does
	lookEvery   time.Duration  // how often look is called
	looking     sync.WaitGroup // the goroutine that calls it
	lookingEnds chan struct{}  // ends it; nil: it does not run
}

// blas is cuBLASLt and the products it has been asked for.
type blas struct {
	dev      *dev
	lib      *cudart.Blas // nil where our own kernels compute all products
	platform Platform     // of lib
	choices  *Choices
	context  cudart.Context
	handle   cudart.BlasHandle
	mu       sync.Mutex
	products map[productKey]*product
}

// New opens a GPU. The error says what is missing.
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

// crowded adds a likely reason to the error of a card that is too full to open.
func (d *dev) crowded(err error) error {
	var counted *device.OutOfMemory
	if !errors.Is(err, cudart.ErrOutOfMemory) || errors.As(err, &counted) {
		return err
	}
	return fmt.Errorf("%w: the %s has no room for mt's kernels; is another process using it (nvidia-smi lists them)?", err, d.name)
}

// check refuses a GPU or a driver that the kernels cannot run on.
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
		runtime, _ := d.cuda.RuntimeVersion() // where it fails, 0 is left out of the text
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

// cudaVersion is a version as people write it: 12040 is 12.4.
func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// open makes the context, loads the first kernels and sets the budget.
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
	// NVML's figures are for something else where it shows far more memory than
	// CUDA: CUDA sees one instance of a card that is partitioned (MIG), NVML the
	// whole card.
	if before == 0 || visible-total > total/8 {
		before = min(total, free+AssumedContext)
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

// openBlas uses cuBLASLt where it is installed.
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

// AssumedContext is how many bytes the context, the kernels and the workspaces of
// libraries are assumed to need where no GPU can be asked.
const AssumedContext = 512 << 20

const (
	leastContext = 192 << 20 // no context of a GPU that mt runs on is smaller
	mostContext  = 2 << 30   // more than this is memory that another process has taken meanwhile
	lazyBlas     = 64 << 20  // kernels that cuBLASLt loads when it first needs them
	lazyModule   = 2 << 20   // for a module of ours: it needs less than 256 KiB, but memory comes in such pieces
)

// setBudget works out how much memory the context takes, from the free memory
// before and after and from what is loaded later, and sets the limit. The scratch
// memory of one stream is allocated at once, so that it is counted before anybody
// plans.
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

// reserve is how much of a card a budget leaves free. CUDA gives out large
// allocations in pieces of 2 MiB, so the ends of a hundred of them may waste a
// hundred MiB.
func reserve(total int64) int64 {
	return min(max(total/50, min(total/8, 256<<20)), 512<<20)
}

// freeBefore is how much device memory is free before there is a context, and how
// much there is in all. Both are 0 where NVML cannot say.
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

// note keeps s, for Notes to return.
func (d *dev) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, s)
}

// noteOnce does the same, but only the first time for each subject.
func (d *dev) noteOnce(about, s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.noted[about] {
		d.noted[about] = true
		d.notes = append(d.notes, s)
	}
}

// fallBack keeps a shape of Fallbacks.
func (d *dev) fallBack(shape string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.fallbacks, shape) && len(d.fallbacks) < mostProducts {
		d.fallbacks = append(d.fallbacks, shape)
	}
}

// Fallbacks are the matrix products that cuBLASLt refused although their memory is aligned, and
// that mt's own kernels computed, slower.
func (d *dev) Fallbacks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.fallbacks)
}

// OwnProducts is how many matrix products mt's own kernels have computed so far because there is no
// cuBLASLt or it refused them.
func (d *dev) OwnProducts() int64 { return d.own.Load() }

// CuBLASLt is the version of the library that computes products, 120402 for 12.4.2; 0: there is none.
func (d *dev) CuBLASLt() int { return d.blas.platform.CuBLASLt }

// pinHelp is what to do where memory cannot be pinned.
const pinHelp = "a higher limit of locked memory helps (ulimit -l, or --ulimit memlock=-1 of a container)"

// refuse notes that so much host memory cannot be pinned, once for each reason.
func (d *dev) refuse(what string, err error) {
	about, help := "pinning", pinHelp
	if errors.Is(err, cudart.ErrAlreadyRegistered) {
		about, help = "pages", "it shares a page with memory that is pinned"
	}
	d.noteOnce(about, fmt.Sprintf("the system does not pin %s of host memory (%v): copies go through staging memory, slower; %s", what, err, help))
}

// Notes are what the user should know about this device, in the order in which it
// came up. Some only come up while it works.
func (d *dev) Notes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.notes...)
}

func (d *dev) Name() string { return d.name }
func (d *dev) Kind() string { return "cuda" }

// regret keeps an error for Close to return, because no other call of the contract
// is sure to return it.
func (d *dev) regret(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.late = append(d.late, err)
}

// release calls f to give something back. f has done so even where it returns an
// error: what CUDA fails to give back is gone anyway, or can never be given back.
// The error is returned by Close.
func (d *dev) release(f func() error) {
	if err := f(); err != nil {
		d.regret(err)
	}
}

// releaseBy is release for an f in which other calls are made before the C function
// op. Where one of those fails, f is called a second time.
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

// Close gives everything back: memory, events, kernels and the context. It does not
// wait for a device that is lost. Its error is the first one that nobody may have
// been told of, such as one of Free.
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
