// Package actors is the pipeline: Feeder, Prefetcher, Compute, Offloader,
// Optimizer, Checkpointer, Reporter and Conductor exchange layer buffers as
// messages, and credits are the only backpressure.
//
// Each actor is a pure core, step(msg) → effects, without clock, I/O or
// goroutine, and a thin protoactor process that executes the effects. An effect is
// a message to send or a work to do; a work names the messages that are sent when it
// is done.
//
// A core knows what every run does. What only some runs do is a piece with a file of its own that the core's constructor puts
// into a fixed order: subcores and hooks of the Optimizer, servers and hooks of the Prefetcher, hooks of Compute, slabs of the
// Offloader. The core asks the pieces that a run has, by a small interface, and no core asks which there are. A task is
// what a work does; it starts itself (task.start), and stands beside the core that asks for it.
//
// Where several ranks train together, an Exchanger and a Gatherer are between the Offloader,
// the Optimizer and the Prefetcher (ARCHITECTURE.md, Several ranks).
//
// It imports data, device, device/op, host, host/optim, internal/parallel, internal/ranks,
// layers, plan and schedule, and is the only package that imports protoactor. Invariant:
// every credit has one owner, one message that tells that it is taken and one that
// returns it (credits_test.go).
package actors
