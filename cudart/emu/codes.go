package emu

import (
	"sync"
	"unsafe"
)

// Status codes of libcudart and libcuda, which use the same numbers.
const (
	errInvalidValue         = 1
	errOutOfMemory          = 2
	errNotInitialized       = 3
	errDeinitialized        = 4
	errInsufficientDriver   = 35
	errNoDevice             = 100
	errInvalidDevice        = 101
	errInvalidContext       = 201
	errPeerUnsupported      = 217
	errInvalidPTX           = 218
	errUnsupportedPTX       = 222
	errInvalidHandle        = 400
	errNotFound             = 500
	errNotReady             = 600
	errIllegalAddress       = 700
	errPeerAlreadyEnabled   = 704
	errContextIsDestroyed   = 709
	errAlreadyRegistered    = 712
	errNotRegistered        = 713
	errNotSupported         = 801
	errUnknown              = 999
	errLaunchOutOfResources = 701
)

// codeText is the text of a code: its name in libcudart, its name in libcuda, and its description.
type codeText struct{ runtime, driver, words string }

var codeTexts = map[int32]codeText{
	0:                       {"cudaSuccess", "CUDA_SUCCESS", "no error"},
	errInvalidValue:         {"cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	errOutOfMemory:          {"cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	errNotInitialized:       {"cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	errDeinitialized:        {"cudaErrorCudartUnloading", "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	errInsufficientDriver:   {"cudaErrorInsufficientDriver", "", "CUDA driver version is insufficient for CUDA runtime version"},
	errNoDevice:             {"cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	errInvalidDevice:        {"cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	errInvalidContext:       {"cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	errPeerUnsupported:      {"cudaErrorPeerAccessUnsupported", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
	errPeerAlreadyEnabled:   {"cudaErrorPeerAccessAlreadyEnabled", "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	errInvalidPTX:           {"cudaErrorInvalidPtx", "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	errUnsupportedPTX:       {"cudaErrorUnsupportedPtxVersion", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
	errInvalidHandle:        {"cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	errNotFound:             {"cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	errNotReady:             {"cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "device not ready"},
	errIllegalAddress:       {"cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	errLaunchOutOfResources: {"cudaErrorLaunchOutOfResources", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
	errContextIsDestroyed:   {"cudaErrorContextIsDestroyed", "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	errAlreadyRegistered:    {"cudaErrorHostMemoryAlreadyRegistered", "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
	errNotRegistered:        {"cudaErrorHostMemoryNotRegistered", "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
	errNotSupported:         {"cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	errUnknown:              {"cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unknown error"},
}

// Codes of libcublasLt.
const (
	blasNotInitialized = 1
	blasInvalidValue   = 7
	blasInternalError  = 14
	blasNotSupported   = 15
	blasFailed         = 13
)

var blasTexts = map[int32]string{
	0:                  "success",
	blasNotInitialized: "the library was not initialized",
	3:                  "the resource allocation failed",
	blasInvalidValue:   "an unsupported value or parameter was passed to the function",
	blasFailed:         "the function failed to launch on the GPU",
	blasInternalError:  "an internal operation failed",
	blasNotSupported:   "the requested functionality is not supported",
}

// Codes of libnvidia-ml.
const (
	mlUninitialized    = 1
	mlInvalidArgument  = 2
	mlNotFound         = 6
	mlInsufficientSize = 7
	mlLost             = 15
	mlUnknown          = 999
)

var mlTexts = map[int32]string{
	0:                  "The operation was successful",
	mlUninitialized:    "Uninitialized",
	mlInvalidArgument:  "Invalid Argument",
	mlNotFound:         "Not Found",
	mlInsufficientSize: "Insufficient Size",
	mlLost:             "GPU is lost",
	mlUnknown:          "Unknown Error",
}

// cStrings holds the strings that have been passed to C, by content. They are never freed, since C may keep their
// addresses.
var cStrings struct {
	sync.Mutex
	of map[string]*byte
}

// cString returns the address of s with a terminating NUL.
func cString(s string) uintptr {
	cStrings.Lock()
	defer cStrings.Unlock()
	p, ok := cStrings.of[s]
	if !ok {
		b := append([]byte(s), 0)
		p = &b[0]
		if cStrings.of == nil {
			cStrings.of = map[string]*byte{}
		}
		cStrings.of[s] = p
	}
	return uintptr(unsafe.Pointer(p))
}

// goText returns the NUL-terminated string at p, at most limit bytes.
func goText(p unsafe.Pointer, limit int) string {
	n := 0
	for n < limit && *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// putText writes s and a NUL to the n bytes at p. It truncates s if necessary.
func putText(p unsafe.Pointer, n int, s string) {
	if n <= 0 {
		return
	}
	b := unsafe.Slice((*byte)(p), n)
	b[copy(b[:n-1], s)] = 0
}
