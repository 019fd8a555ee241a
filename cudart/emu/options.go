package emu

import (
	"runtime"
	"time"
)

// Mode says when enqueued work runs.
type Mode int

const (
	// Eager runs work as soon as a stream and its events allow, oldest first.
	Eager Mode = iota
	// Random runs work in an order drawn from Options.Seed among all operations
	// that may run; some of it runs early, the rest when somebody waits.
	Random
	// Lazy runs nothing until somebody waits, and then only what that needs. Of
	// this it runs the work enqueued last first.
	Lazy
)

// Options describe the devices, their driver and what goes wrong. The zero value is
// one healthy GPU of compute capability 9.0 with 8 GiB.
type Options struct {
	Mode Mode
	Seed uint64 // of Random, and of the order of warps and copies in kernels

	Devices           int    // how many GPUs there are, all alike, each with memory, context, streams and modules of its own; 0 is 1
	Name              string // "Emulated GPU"
	ComputeCapability int    // 90 is 9.0
	DeviceMemory      int64  // bytes; allocations take host memory of their size
	BoardMemory       int64  // bytes that libnvidia-ml sees, more where the GPU is a part of a board; 0 is DeviceMemory
	ContextMemory     int64  // bytes that the context takes from DeviceMemory
	DriverVersion     int    // as cuDriverGetVersion gives it; 12080 is 12.8
	RuntimeVersion    int    // as cudaRuntimeGetVersion gives it
	MaxPTXVersion     int    // the newest PTX that the driver takes, 87 is 8.7; 0 is what DriverVersion takes

	// WithoutPeers: no GPU has a way to another one, as with many GeForce cards.
	WithoutPeers bool
	// SpoilPeers: copies between GPUs bring other bytes than were sent, as where an IOMMU stands
	// in the way.
	SpoilPeers bool

	NoDevice       bool // there is a driver and no GPU
	DriverTooOld   bool // the driver is older than libcudart
	WithoutRuntime bool // libcudart is not installed
	WithoutBlasLt  bool // libcublasLt is not installed
	WithoutML      bool // libnvidia-ml is not installed

	// Integrated has the devices say that they have no memory of their own, as GB10 and Jetson do. Their kernels and cuBLASLt's
	// products reach pinned host memory. Others reach it on a real machine too, and are held to device memory here.
	Integrated bool

	// Watchdog has the devices say that kernels which take long are ended; none is.
	Watchdog bool

	// HostPage is the size in bytes of the host's pages, a power of two, as cudaHostRegister sees it; 0 is 4096. Kernels for
	// arm64 with pages of 64 KiB are common.
	HostPage int
	// RefuseRegister is the code that cudaHostRegister returns; with 0 it
	// registers.
	RefuseRegister int
	// RefuseProducts is the code that cublasLtMatmul returns, even for algorithms
	// that were proposed; with 0 it computes.
	RefuseProducts int
	// ProductTimes are the device times that the algorithms of libcublasLt for matrix
	// products take beside the emulator's own, which events show and nobody waits for,
	// in the order in which they are proposed. Nil is three that take none.
	ProductTimes []time.Duration
	// RegisterLimit is how many bytes may be registered at the same time, as where
	// locked memory is limited. Beyond it cudaHostRegister returns 2. 0 is no
	// limit.
	RegisterLimit int64

	// Hang, unless it is empty, has work whose description contains it ("kernel rmsnorm", "copy to device") not end
	// until Driver.EndHang. Streams that do not wait for such work go on.
	Hang string

	// FailCall makes the C call of that number fail; calls are counted from 1, and
	// with 0 none fails. A call that enqueues or creates something then does
	// nothing. A call that waits or gives something back does its work and reports
	// the failure, as CUDA does with earlier errors.
	FailCall int
	// FailCode is the code with which FailCall fails, in libcudart and libcuda;
	// 0 is 999. libcublasLt answers 14 and libnvidia-ml 999.
	FailCode int
	// LoseDeviceAt loses the devices at the C call of that number, counted from 1;
	// with 0 never. From then on every call fails and no work runs.
	LoseDeviceAt int
	// LostCode is what libcudart and libcuda return then; 0 means 999.
	LostCode int

	// HangAt is the launch that does not end until Driver.EndHang.
	HangAt Launch
	// CrashAt is the launch that accesses an illegal address. No context of the process can be used from then on.
	CrashAt Launch
	// FullAt is the number of the cudaMalloc, counted from 1, from which on device memory is full, whatever
	// cudaMemGetInfo says; with 0 it never is.
	FullAt int
	// CoreDump names the file that a GPU writes when a kernel fails, as CUDA_COREDUMP_FILE does. It names the kernel.
	// "": none.
	CoreDump string

	// Threads is how many goroutines execute a kernel; 0 means GOMAXPROCS.
	Threads int
	// CheckGlobal reports blocks of one launch, and warps of one block, that race
	// in global memory.
	CheckGlobal bool
	// OrderOnly executes a kernel once for each set of its parameters, its grid and
	// its block, and remembers what it touched. Later launches with the same set
	// change no memory; they are only checked against what is ordered around them.
	// It is for tests that draw many orders of work which repeats itself and
	// touches the same memory each time.
	OrderOnly bool
}

// withDefaults fills in the fields that o leaves at zero.
func (o Options) withDefaults() Options {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if o.Name == "" {
		o.Name = "Emulated GPU"
	}
	if o.DeviceMemory == 0 {
		o.DeviceMemory = 8 << 30
	}
	if o.BoardMemory == 0 {
		o.BoardMemory = o.DeviceMemory
	}
	if o.ProductTimes == nil {
		o.ProductTimes = make([]time.Duration, 3)
	}
	def(&o.Devices, 1)
	def(&o.HostPage, pageSize)
	def(&o.ComputeCapability, 90)
	if o.DriverTooOld {
		def(&o.DriverVersion, 11040)
	}
	def(&o.DriverVersion, 12080)
	def(&o.RuntimeVersion, 12080)
	def(&o.MaxPTXVersion, ptxVersion(o.DriverVersion))
	def(&o.FailCode, errUnknown)
	def(&o.LostCode, errUnknown)
	def(&o.Threads, runtime.GOMAXPROCS(0))
	return o
}

// ptxVersion is the newest PTX version that a driver takes. Source: the release
// history in the PTX ISA manual.
func ptxVersion(driver int) int {
	switch major, minor := driver/1000, driver%1000/10; {
	case major < 12:
		return 70 + minor
	case major == 12 && minor <= 5:
		return 80 + minor
	case major == 12:
		return 79 + minor
	default:
		return 90 + minor
	}
}

// maxSharedOptIn is the most shared memory in bytes that a block can have.
// Source: CUDA C++ Programming Guide, technical specifications per compute
// capability.
func (o *Options) maxSharedOptIn() int {
	switch o.ComputeCapability {
	case 80, 87:
		return 163 << 10
	case 90, 100, 101, 103, 110:
		return 227 << 10
	default:
		return 99 << 10
	}
}
