// Package cpu implements the device contract with goroutines and SIMD. A stream is a goroutine with a queue, an event
// is a channel that closes, and a copy is a plain copy of memory. A pool of workers spreads each operation over all
// cores.
//
// It imports device, device/op, base/parallel and its own kernels (gemm, vec).
//
// Invariant: results depend on shapes and values alone, never on the number of threads or on timing. The race
// detector sees neither assembly nor memory outside the Go heap. So in race builds memory comes from the Go heap, and
// every operation announces its reads and writes.
package cpu
