// Package actors is the pipeline: Feeder, Prefetcher, Compute, Offloader,
// Optimizer, Checkpointer, Reporter and Conductor exchange layer buffers as
// messages, and credits are the only backpressure.
//
// Each actor is a pure core, step(msg) → effects, without clock, I/O or
// goroutine, and a thin protoactor process that executes the effects. An effect is
// a message to send or a work to do; a work names the messages that are sent when it
// is done.
//
// Where several ranks train together, an Exchanger and a Gatherer are between the Offloader,
// the Optimizer and the Prefetcher (ARCHITECTURE.md, Several ranks).
//
// It imports data, device, device/op, host, host/optim, internal/parallel, internal/ranks,
// layers, plan and schedule, and is the only package that imports protoactor. Invariant:
// every credit has one owner, one message that tells that it is taken and one that
// returns it (credits_test.go).
package actors
