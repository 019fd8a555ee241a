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
// # Credits
//
// Credits bound how far an actor runs ahead; mailboxes have no bound. ARCHITECTURE.md has the
// table of credits. A launch ahead is taken by a work, every other credit by a message.
//
//   - With clipping on one rank, each layer has a slab of its own, which is no credit.
//     Layers whose gradients wait on a disk take turns in slabs all the same.
//   - Where all layers take turns, tied embeddings need at least two slabs.
//   - Launches ahead keep the driver's queue from filling, in which a thread would wait.
//     Waiting for this credit is no stall: the device is at work.
//   - An activation slot for another lane's activation is taken when the slot is allotted
//     and offered to that lane.
//
// # In place and skipped
//
// On a unified device nothing is copied: tiles are bound where they lie on the host. A gradient
// is then summed in the layer's slab, if the layer has one of its own and the slab is fp32.
//
// Activations travel on streams of their own, so activation copies and weight or gradient copies
// never block each other.
//
// With clipping, a norm that is not finite skips the update. Without clipping, grad_slabs slabs
// are enough, and a gradient that is not finite ends the run. A step can be given up until its
// first layer is updated (abort.go).
//
// A run that stops between steps, as in an evaluation, saves its layers as they are.
//
// # Lanes
//
// A lane is a device with its streams, slots, Prefetcher, Compute and Offloader. The plan puts
// each layer on one lane for both passes (plan.Run.Lane), so a weight goes to one device once a
// pass and nothing is summed across devices. The Conductor plans one program for each lane
// (schedule.Programs).
//
// An activation that the next visit needs on another lane is an object on both lanes. The
// receiving lane allots a slot in the order of its program and offers the slot (SlotOffered) if the
// devices reach each other. The sending Offloader copies into an offered slot, or else to the place
// of the micro-batch on the host, and sends ActivationPassed (passage.go). Passing on never waits for
// the receiver, so two lanes cannot wait for each other.
//
// All layers take the micro-batches in one order (micro_batch_order: lanes), so micro-batches
// follow each other from lane to lane. The other choices that bits depend on are made as for one
// device: micro-batches, chunks, parts of the head, the type of gradients. A run may therefore
// continue on another number of devices with the same bits.
//
// # Ranks
//
// A rank is a process, normally one a host. Each rank streams all tiles and keeps its share of lower
// halves, planes and waiting gradients (optim.Shares, cut at units). The rows of a batch are divided
// (data.NewRankBatch). Two actors join the pipeline:
//
//	Offloader ─GradLanded─► Exchanger ─GradExchanged─► Optimizer ─ShareUpdated─► Gatherer ─LayerUpdated─► Prefetcher, Checkpointer
//	    ▲                    │  ▲  ╲╱ all ranks            │                       ╲╱ all ranks
//	    └─────SlabFreed──────┘  └─────ExchangeBufferFreed──┘                        └──StepUpdated──► Conductor
//
// The Exchanger sends each rank its share of a gradient straight from the slab and receives its own
// share into an exchange buffer. The slab is then free, so slabs are a credit with clipping too. The
// Optimizer adds the parts in rank order in fp32 and updates its share. The Gatherer completes the
// tile from all ranks; at most gathers_ahead layers are under way. Embedding gradients travel as the
// rows of the batch, whose ids every rank knows. A head that shares its table has the rows added on each
// rank first.
//
// All ranks begin their operations in one order. Gradients go from the last layer to the first, a
// shared table last. Updates and gathers follow the layers with clipping, else the exchanges.
// Operations may end in any order; their messages keep the order in which they began. The Conductors
// agree at the end of each pass on the sum of losses, stops, diagnoses and the pass (agreement.go).
// The Optimizers agree on norms. What comes next follows from agreements, never from arrival times.
//
// A run that fails on one rank fails on all. Memory of operations under way is given back when they
// are done (rank_comm.go). A fixed number of ranks gives the same bits from run to run; another number
// differs as another order of sums does.
//
// # Time
//
// One interface carries messages and works (carrier in process.go): protoactor and goroutines in a
// run, a virtual clock in a prediction (predict.go). A prediction runs the same cores, lanes and
// templates on device/virtual. Events have times there, so the same code reports stalls and traces.
// Works on the host take what the rates say of their bytes. Copies of one direction go one after the
// other; other works share resources by max-min fairness. mt plan --gpu prints predictions, mt tune
// searches with them, and mt bench predict compares them with measured runs.
//
// With Options.Timeline, a tracer (timeline*.go) follows each work, its slots and the message that
// caused it. Works on streams have events around them. Launches of a training step need none, because
// the marks of stalls serve. hub.now times works on the host; no other clock exists.
//
// It imports data, device, device/op, host, host/optim, base/parallel, base/cluster,
// layers, plan and schedule, and is the only package that imports protoactor. Invariant:
// every credit has one owner, one message that tells that it is taken and one that
// returns it (credits_test.go).
package actors
