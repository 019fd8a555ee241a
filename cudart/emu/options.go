package emu

import (
	"runtime"
	"time"
)

// Mode says when the emulator runs enqueued work, within what streams and events allow.
type Mode int

const (
	// Eager runs an operation as soon as its stream and events allow, the oldest first.
	Eager Mode = iota
	// Random picks the next operation at random (Options.Seed) among all that streams and events
	// allow. Some operations run early, the others when a thread waits.
	Random
	// Lazy runs nothing until a thread waits, and then only the work that the wait needs. Among this work it starts
	// with the newest operation.
	Lazy
)

// Options describes the devices, their driver and injected failures. The zero value is one healthy GPU of compute
// capability 9.0 with 8 GiB.
type Options struct {
	Mode Mode
	Seed uint64 // seed of Random, and of the order of warps and copies in kernels

	Devices           int    // number of identical GPUs, each with its own memory, context, streams and modules; 0: 1
	Name              string // "": "Emulated GPU"
	ComputeCapability int    // 90 is 9.0; 0: 90
	DeviceMemory      int64  // bytes; allocations take host memory of the same size
	BoardMemory       int64  // bytes that libnvidia-ml reports, more than DeviceMemory on a partitioned board; 0: DeviceMemory
	ContextMemory     int64  // bytes of DeviceMemory that a context takes
	DriverVersion     int    // result of cuDriverGetVersion; 12080 is 12.8
	RuntimeVersion    int    // result of cudaRuntimeGetVersion
	MaxPTXVersion     int    // newest PTX version that the driver accepts, 87 is 8.7; 0: the version of DriverVersion

	// WithoutPeers: the GPUs cannot access each other's memory, as many GeForce cards cannot.
	WithoutPeers bool
	// SpoilPeers: copies between GPUs deliver wrong bytes, as some IOMMUs cause.
	SpoilPeers bool

	NoDevice       bool // a driver is installed, but there is no GPU
	DriverTooOld   bool // the driver is older than libcudart
	WithoutRuntime bool // libcudart is not installed
	WithoutBlasLt  bool // libcublasLt is not installed
	WithoutML      bool // libnvidia-ml is not installed

	// Integrated: the devices report that they have no memory of their own, like GB10 and Jetson. Their kernels and
	// cuBLASLt products reach pinned host memory. Discrete GPUs reach it too, but the emulator restricts them to
	// device memory.
	Integrated bool

	// Watchdog: the devices report that kernels have a time limit, as a GPU with a display does. The emulator does
	// not enforce the limit.
	Watchdog bool

	// HostPage is the page size in bytes for cudaHostRegister, a power of two; 0: 4096. arm64 Linux kernels often use
	// pages of 64 KiB.
	HostPage int
	// RefuseRegister is the error code of cudaHostRegister; 0: it succeeds.
	RefuseRegister int
	// RefuseProducts is the error code of every cublasLtMatmul, even with proposed algorithms; 0:
	// products are computed.
	RefuseProducts int
	// ProductTimes has one entry for each cublasLt algorithm that the heuristic proposes: the time
	// of the algorithm on the device. Events report these times alone, and nothing really waits, so
	// a delay of this machine changes no result. nil: three algorithms, and events report real time.
	ProductTimes []time.Duration
	// RegisterLimit is the limit of registered bytes, like a limit of locked memory. Beyond it cudaHostRegister
	// returns 2. 0: no limit.
	RegisterLimit int64

	// Hang is a part of an operation's description ("kernel rmsnorm", "copy to device"). Matching operations do not
	// end until Driver.EndHang. Streams that do not wait for them continue. "": none.
	Hang string

	// FailCall is the number, counted from 1, of the C call that fails; 0: none. A failing call that enqueues or
	// creates something does nothing. A failing call that waits or releases something does its work and reports the
	// failure, as CUDA reports earlier errors.
	FailCall int
	// FailCode is the code of FailCall in libcudart and libcuda; 0: 999. libcublasLt returns 14 and libnvidia-ml 999.
	FailCode int
	// LoseDeviceAt is the number, counted from 1, of the C call at which all devices are lost; 0: never. From then on
	// every call fails and no work runs.
	LoseDeviceAt int
	// LostCode is the error code that calls of libcudart and libcuda return once the devices are lost. The value 0
	// stands for 999 (unknown error).
	LostCode int

	// HangAt selects a launch that does not end until Driver.EndHang.
	HangAt Launch
	// CrashAt selects a launch that accesses an illegal address. No context of the process can be
	// used from then on.
	CrashAt Launch
	// FullAt is the number, counted from 1, of the first cudaMalloc that fails for lack of memory.
	// Later ones fail too, whatever cudaMemGetInfo reports. 0: none.
	FullAt int
	// CoreDump is the file that the GPU writes when a kernel fails, like CUDA_COREDUMP_FILE. It contains the kernel
	// name. "": none.
	CoreDump string

	// Threads is how many goroutines execute a kernel; 0: GOMAXPROCS.
	Threads int
	// CheckGlobal reports races in global memory between blocks of a launch and between warps of a block.
	CheckGlobal bool
	// OrderOnly serves tests that try many orders of repeating work. A kernel executes once for
	// each combination of parameters, grid and block, and its accesses are recorded. Later launches
	// with the same combination change no memory; only the order of their accesses is checked.
	OrderOnly bool
}

// withDefaults returns o with defaults in place of zero fields.
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

// ptxVersion returns the newest PTX version, such as 83 for 8.3, that a driver accepts. driver is in the form of
// cuDriverGetVersion. Source: the release history in the PTX ISA manual.
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

// maxSharedOptIn returns the maximum shared memory per block in bytes. Source: CUDA C++ Programming Guide, technical
// specifications per compute capability.
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
