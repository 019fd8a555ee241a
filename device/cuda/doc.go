// Package cuda is the device contract on an NVIDIA GPU: the CUDA runtime and
// driver through package cudart, matrix products by cuBLASLt, everything else by
// the kernels of package kernels.
//
// Calls enqueue their work from the caller's goroutine. Two more goroutines serve a
// stream. One waits for events and delivers notifications. The other one, the
// worker, starts with the first copy from or to host memory that is not pinned; it
// moves such copies through pinned slabs, and enqueues whatever comes after them.
//
// It imports device, device/op, device/cuda/kernels, cudart, internal/human
// and internal/parallel.
//
// A device is one GPU, known by its ordinal. Several GPUs are several devices,
// which share nothing here.
//
// Invariant: nothing here waits for the device on the caller's goroutine, except
// Sync, Free, the Close methods, the first call that needs a module of kernels, and
// calls that fail.
package cuda
