// Package cpu is the device contract on goroutines and SIMD: a stream is a
// goroutine with a queue, an event a channel that is closed, and a copy a plain
// copy of memory. A pool of workers spreads each operation over all cores.
//
// It imports device, device/op, base/parallel and its own
// kernels (gemm, vec).
//
// Invariant: results depend on shapes and values alone, never on the number of
// threads or on timing. The race detector sees neither assembly nor memory that
// is not Go's; so in race builds memory comes from the Go heap, and every
// operation announces what it reads and writes.
package cpu
