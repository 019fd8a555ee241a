// Package cuda is the device contract on an NVIDIA GPU: the CUDA runtime and
// driver through package cudart, matrix products by cuBLASLt, everything else by
// the kernels of package kernels.
//
// Calls enqueue their work from the caller's goroutine. Two more goroutines serve a
// stream. One waits for events and delivers notifications. The other one, the
// worker, starts with the first copy from or to host memory that is not pinned; it
// moves such copies through pinned slabs, and enqueues whatever comes after them.
//
// Matrix products go to cuBLASLt with one algorithm for each shape (choose.go), or to our own kernels
// where the library is absent or refuses. Nothing is allocated between op.Do and the driver's call.
// Attention that a watchdog would end is cut by heads (watchdog.go).
//
// Host memory is pinned in pieces of 256 MiB, several at a time, and copies are cut where pieces meet
// (register.go). Ranges whose pages touch are merged first: the driver refuses a page that is pinned
// already, and a page of 64 KiB holds parts of several tiles.
//
// It imports device, device/op, device/cuda/kernels, cudart, base/human
// and base/parallel.
//
// A device is one GPU, known by its ordinal. Several GPUs are several devices,
// which share nothing here.
//
// Invariant: nothing here waits for the device on the caller's goroutine, except
// Sync, Free, the Close methods, the first call that needs a module of kernels, and
// calls that fail.
package cuda
