// Package cuda implements the device contract on an NVIDIA GPU. It uses the CUDA runtime and driver
// through package cudart, cuBLASLt for matrix products, and package kernels for everything else.
//
// Calls enqueue their work from the caller's goroutine. Each stream has two goroutines of its own.
// One waits for events and delivers notifications. The other one, the worker, starts with the first
// copy of unpinned host memory. It moves such copies through pinned staging slabs. While it has
// work left, it also enqueues all later work of the stream, to keep the order.
//
// Matrix products use cuBLASLt with one algorithm for each shape (choose.go), or mt's own kernels
// if the library is absent or refuses. No memory is allocated between op.Do and the driver's call.
// Attention that a watchdog would end is split by heads (watchdog.go).
//
// Host memory is pinned in pieces of 256 MiB, several at a time, and copies are cut where pieces
// meet (register.go). Ranges whose pages touch are merged first, because the driver refuses a page
// that is already pinned, and one page of 64 KiB may hold parts of several tiles.
//
// It imports device, device/op, device/cuda/kernels, cudart, base/human and base/parallel.
//
// A device is one GPU, identified by its ordinal. Several GPUs are several devices and share
// nothing here.
//
// Invariant: no call waits for the device on the caller's goroutine. The exceptions are Sync, Free,
// the Close methods, the first call that needs a module of kernels, and calls that fail.
package cuda
