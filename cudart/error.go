package cudart

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Kinds of failure. errors.Is reports whether an *Error is of one of these kinds.
var (
	// ErrOutOfMemory: device memory, or memory to pin, is exhausted.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrNoDevice: no GPU that CUDA can use, or no driver for it.
	ErrNoDevice = errors.New("no CUDA device")
	// ErrDriverTooOld: the driver is older than the library, or than the PTX.
	ErrDriverTooOld = errors.New("the NVIDIA driver is too old")
	// ErrContextLost: a fault has made the context unusable. All later calls on the device fail; only a new process
	// helps.
	ErrContextLost = errors.New("the CUDA context is lost")
	// ErrNotSupported: this device, driver or library does not support the request.
	ErrNotSupported = errors.New("not supported")
	// ErrNotReady: the work that an event marks has not finished.
	ErrNotReady = errors.New("not ready")
	// ErrAlreadyRegistered: a host range overlaps a registered one.
	ErrAlreadyRegistered = errors.New("host memory is already registered")
	// ErrNotRegistered: a host range is not registered.
	ErrNotRegistered = errors.New("host memory is not registered")
	// ErrNotFound: a module has no such function, or NVML has no such device.
	ErrNotFound = errors.New("not found")
	// ErrInvalidValue: the library rejects an argument.
	ErrInvalidValue = errors.New("invalid value")
	// ErrMissing: a library, or a function in it, is missing.
	ErrMissing = errors.New("missing")
)

// codeMissing is the Code of an Error about a library itself. CUDA codes are never negative.
const codeMissing = -1

// kind lists, for each library, the status codes that mean the failure is. The list cuda is for
// libcudart and libcuda, which use the same numbers since CUDA 10.1.
type kind struct {
	is               error
	cuda, blas, nvml []int
}

// kinds lists the codes of every kind of failure. Sources:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
// https://docs.nvidia.com/cuda/cublas/#cublasstatus-t
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
var kinds = []kind{
	{is: ErrOutOfMemory, cuda: []int{errorMemoryAllocation}, blas: []int{blasAllocFailed}, nvml: []int{nvmlInsufficientMemory}},
	{is: ErrNoDevice, cuda: []int{errorNoDevice, errorStubLibrary}, nvml: []int{nvmlDriverNotLoaded}},
	{is: ErrDriverTooOld, cuda: []int{errorInsufficientDriver, errorUnsupportedPTXVersion, errorSystemDriverMismatch, errorCompatNotSupported}},
	{is: ErrContextLost, cuda: lostCodes, nvml: []int{nvmlGPUIsLost}},
	{is: ErrNotSupported, cuda: []int{errorNotSupported, errorNoKernelImageForDevice, errorMapBufferObjectFailed, errorPeerAccessUnsupported, errorTooManyPeers}, blas: []int{blasNotSupported, blasArchMismatch}, nvml: []int{nvmlNotSupported}},
	{is: ErrNotReady, cuda: []int{errorNotReady}},
	{is: ErrAlreadyRegistered, cuda: []int{errorHostMemoryAlreadyRegistered}},
	{is: ErrNotRegistered, cuda: []int{errorHostMemoryNotRegistered}},
	{is: ErrNotFound, cuda: []int{errorSymbolNotFound}, nvml: []int{nvmlNotFound}},
	{is: ErrInvalidValue, cuda: []int{errorInvalidValue}, blas: []int{blasInvalidValue}, nvml: []int{nvmlInvalidArgument}},
}

// Codes of libcudart and libcuda.
const (
	errorInvalidValue                = 1
	errorMemoryAllocation            = 2
	errorStubLibrary                 = 34
	errorInsufficientDriver          = 35
	errorDevicesUnavailable          = 46
	errorNoDevice                    = 100
	errorMapBufferObjectFailed       = 205 // from enabling peer access, if the cards' BAR windows are too small
	errorNoKernelImageForDevice      = 209
	errorECCUncorrectable            = 214
	errorPeerAccessUnsupported       = 217
	errorNVLinkUncorrectable         = 220
	errorUnsupportedPTXVersion       = 222
	errorContained                   = 226
	errorSymbolNotFound              = 500
	errorNotReady                    = 600
	errorIllegalAddress              = 700
	errorLaunchTimeout               = 702
	errorPeerAccessAlreadyEnabled    = 704
	errorContextIsDestroyed          = 709
	errorAssert                      = 710
	errorTooManyPeers                = 711
	errorHostMemoryAlreadyRegistered = 712
	errorHostMemoryNotRegistered     = 713
	errorHardwareStackError          = 714
	errorIllegalInstruction          = 715
	errorMisalignedAddress           = 716
	errorInvalidAddressSpace         = 717
	errorInvalidPC                   = 718
	errorLaunchFailure               = 719
	errorNotSupported                = 801
	errorSystemNotReady              = 802
	errorSystemDriverMismatch        = 803
	errorCompatNotSupported          = 804
	errorUnknown                     = 999
)

// lostCodes are the codes of faults after which the context cannot be used any more.
var lostCodes = []int{
	errorECCUncorrectable, errorNVLinkUncorrectable, errorContained, errorIllegalAddress, errorLaunchTimeout, errorContextIsDestroyed, errorAssert,
	errorHardwareStackError, errorIllegalInstruction, errorMisalignedAddress, errorInvalidAddressSpace, errorInvalidPC,
	errorLaunchFailure, errorUnknown,
}

// Codes of cublasLt and of NVML.
const (
	blasAllocFailed  = 3
	blasInvalidValue = 7
	blasArchMismatch = 8
	blasNotSupported = 15

	nvmlInvalidArgument    = 2
	nvmlNotSupported       = 3
	nvmlNotFound           = 6
	nvmlDriverNotLoaded    = 9
	nvmlGPUIsLost          = 15
	nvmlInsufficientMemory = 20
)

// Error is the error of a C function that returned a status code other than 0, or of a missing
// library.
type Error struct {
	Library Library
	Op      string // the C function
	Code    int    // its status code
	Text    string // the library's text for Code
	Detail  string // further details, such as a compilation log; may be empty
}

// Error has the form "cudaMalloc: out of memory (code 2): detail".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	switch {
	case e.Code == codeMissing:
	case e.Text == "":
		fmt.Fprintf(&b, ": code %d", e.Code)
	default:
		fmt.Fprintf(&b, ": %s (code %d)", e.Text, e.Code)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if hint := e.hint(); hint != "" {
		b.WriteString("; " + hint)
	}
	return b.String()
}

// trapped is the hint for the codes that a kernel's trap instruction may cause. mt's kernels trap
// if they wait too long.
const trapped = "a kernel faulted, or trapped because it waited for some 20 s: dmesg has the Xid; run mt doctor --selftest"

// hints tell the user what to do about some codes of libcudart and libcuda.
var hints = map[int]string{
	errorDevicesUnavailable: "the GPU is busy or in exclusive mode: end the other process (nvidia-smi lists them), or nvidia-smi -c 0",
	errorSystemNotReady:     "the GPUs of this machine need NVIDIA's fabric manager: systemctl start nvidia-fabricmanager, of the driver's version",
	errorIllegalAddress:     "run mt doctor --selftest; if it passes, report the run's configuration",
	errorIllegalInstruction: trapped,
	errorLaunchFailure:      trapped,
	errorUnknown:            "dmesg may have an Xid; load nvidia_uvm (nvidia-modprobe -u), and reboot if the driver was updated",
}

// hint returns the remedy for the error; "": none known.
func (e *Error) hint() string {
	if e.Library == Runtime || e.Library == Driver {
		return hints[e.Code]
	}
	return ""
}

// Is implements errors.Is for the kinds of failure of this package.
func (e *Error) Is(target error) bool {
	if e.Code == codeMissing {
		return target == ErrMissing
	}
	for _, k := range kinds {
		if k.is == target {
			return slices.Contains(k.codes(e.Library), e.Code)
		}
	}
	return false
}

func (k *kind) codes(lib Library) []int {
	switch lib {
	case BlasLt:
		return k.blas
	case ML:
		return k.nvml
	}
	return k.cuda
}

// describers are the addresses of the C functions that return the text of a status code; 0:
// missing. They are called while an error is created, so their own failures are ignored.
type describers struct {
	cudaErrorName, cudaErrorString uintptr // const char *f(int)
	cuErrorName, cuErrorString     uintptr // int f(int, const char **)
	blasStatusString               uintptr // const char *f(int)
	nvmlErrorString                uintptr // const char *f(int)
}

// text returns lib's text for a code; "" if there is none.
func (d *describers) text(lib Library, code int) string {
	switch lib {
	case Runtime:
		return firstOf(returned(d.cudaErrorString, code), returned(d.cudaErrorName, code))
	case Driver:
		return firstOf(stored(d.cuErrorString, code), stored(d.cuErrorName, code))
	case BlasLt:
		return returned(d.blasStatusString, code)
	case ML:
		return returned(d.nvmlErrorString, code)
	}
	return ""
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// returned calls a C function that takes a status code and returns a C string. It returns the
// string, or "" if there is no such function.
func returned(addr uintptr, code int) string {
	if addr == 0 {
		return ""
	}
	m := newFrame()
	defer m.release()
	r, _, _ := purego.SyscallN(addr, uintptr(code))
	m.words[0] = uint64(r)
	return cString(m.pointer(0))
}

// stored calls a C function that takes a status code and stores the address of a C string. It
// returns the string, or "" on failure.
func stored(addr uintptr, code int) string {
	if addr == 0 {
		return ""
	}
	m := newFrame()
	defer m.release()
	if r, _, _ := purego.SyscallN(addr, uintptr(code), m.out(0)); r != 0 {
		return ""
	}
	return cString(m.pointer(0))
}

// cString copies the NUL-terminated string at p; "" if p is nil.
func cString(p unsafe.Pointer) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
