// Package cpu is the device contract on goroutines and SIMD: a stream is a
// goroutine with a queue, an event a channel that is closed, a copy a copy.
// Operations are spread over all cores by a pool of workers.
//
// It imports device, device/op, internal/parallel, internal/queue and its own
// kernels (gemm, vec).
// Invariant: results depend on shapes and values alone, never on the number of
// threads or on timing. Under the race detector, which sees neither assembly
// nor memory that is not Go's, memory comes from the Go heap and every
// operation announces what it reads and writes.
package cpu
