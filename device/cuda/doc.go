// Package cuda is the device contract on an NVIDIA GPU: the CUDA runtime and
// driver through package cudart, matrix products by cuBLASLt, everything else by
// the kernels of package kernels.
//
// Calls enqueue from the caller's goroutine. Two goroutines serve a stream: one
// waits for events and delivers notifications; one, which starts with the first
// copy from or to host memory that is not pinned, moves such copies through
// pinned slabs and enqueues what comes after them.
//
// It imports device, device/op, device/cuda/kernels, cudart, internal/human,
// internal/parallel and internal/queue.
//
// A device is one GPU, by its ordinal; several are several devices, which share
// nothing here.
//
// Invariant: nothing here waits for the device on the caller's goroutine, except
// Sync, Free, the Close methods, and what first needs a module of kernels or
// fails.
package cuda
