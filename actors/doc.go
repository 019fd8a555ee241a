// Package actors is the pipeline: Feeder, Prefetcher, Compute, Offloader,
// Optimizer, Checkpointer, Reporter and Conductor exchange layer buffers as
// messages, and credits are the only backpressure.
//
// Each actor is a pure core, step(msg) → effects, without clock, I/O or
// goroutine, and a thin protoactor process that executes the effects. Work that
// takes time carries the message that tells of its end.
//
// It may import device, layers, host, checkpoint, data, plan and model, and is
// the only package that imports protoactor. Invariant: every credit has one
// owner, one message that takes it and one that returns it (credits.go).
package actors
