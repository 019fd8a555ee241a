// Package actors is the training pipeline. Feeder, Prefetcher, Compute, Offloader, Optimizer, Checkpointer, Reporter
// and Conductor pass layer buffers to each other as messages. Credits are the only backpressure.
//
// Each actor has two parts. Its core is a pure function step(msg) → effects, without clock, I/O or goroutines. A thin
// protoactor process executes the effects. An effect is a message to send or a work to start. A work lists the messages
// to send when it is done.
//
// A core contains what every run needs. Behavior that only some runs need is a separate piece in its own file. The
// Optimizer has subcores and hooks, the Prefetcher servers and hooks, Compute hooks, and the Offloader slab keepers.
// The core's constructor puts the pieces into a fixed order, and the core calls them through a small interface. A task
// is the action of a work. Its method start begins the action, and its type stands beside the core that requests it.
//
// # Credits
//
// Credits bound how far an actor runs ahead; mailboxes are unbounded. ARCHITECTURE.md lists the credits. A work takes a
// launch-ahead credit; a message takes every other credit.
//
//   - With clipping on one rank, each layer has its own slab, which is not a credit. Layers whose gradients wait on a
//     disk still take turns in slabs.
//   - If all layers take turns, tied embeddings need at least two slabs.
//   - The launch-ahead credit keeps the driver's queue from filling, because a thread would block on a full queue.
//     Waiting for this credit is not a stall: the device is busy.
//   - The Prefetcher takes an activation slot for another lane's activation when it allots the slot and offers it to
//     that lane.
//
// # In place and skipped
//
// On a unified device nothing is copied: tiles are bound at their host address. A gradient is summed directly in the
// layer's slab if the layer has its own slab and the slab is fp32.
//
// Activations use their own streams, so activation copies and weight or gradient copies never block each other.
//
// With clipping, a non-finite norm skips the update. Without clipping, grad_slabs slabs are enough, and a non-finite
// gradient ends the run. A step can be aborted until its first layer is updated (abort.go).
//
// A run that stops between steps, for example in an evaluation, saves its layers as they are.
//
// # Lanes
//
// A lane is a device with its streams, slots, Prefetcher, Compute and Offloader. The plan puts each layer on one lane
// for both passes (plan.Run.Lane). So each weight goes to one device once a pass, and nothing is summed across devices.
// The Conductor plans one program for each lane (schedule.Programs).
//
// An activation that the next visit needs on another lane is an object on both lanes. The receiving lane allots a slot
// in the order of its program. If the devices reach each other, it offers the slot to the sender (SlotOffered). The
// sending Offloader copies into an offered slot, or else into the micro-batch's place on the host, and sends
// ActivationPassed (passage.go). The sender does not wait for the receiver, so two lanes cannot deadlock. If slots are
// in host memory, the sender waits for an offer, and the two slots exchange their memory.
//
// All layers take the micro-batches in one order (micro_batch_order: lanes), so micro-batches follow each other from
// lane to lane. All other choices that affect bits are made as for one device: micro-batches, chunks, the gradients'
// type. The number of the head's parts is recorded. A run can therefore continue on another number of devices with the
// same bits.
//
// Parts of the head may be on several lanes (layers.Spec.HeadLanes). Their gradients land in one slab, and the Offloader
// of part 0 reports the gradient when all parts have landed (PartLanded).
//
// # Ranks
//
// A rank is a process, normally one for each host. Each rank streams all tiles and keeps its share of lower halves,
// planes and waiting gradients (optim.Shares, cut at units). The ranks divide the rows of a batch (data.NewRankBatch).
// Two actors join the pipeline:
//
//	Offloader ─GradLanded─► Exchanger ─GradExchanged─► Optimizer ─ShareUpdated─► Gatherer ─LayerUpdated─► Prefetcher, Checkpointer
//	    ▲                    │  ▲  ╲╱ all ranks            │                       ╲╱ all ranks
//	    └─────SlabFreed──────┘  └─────ExchangeBufferFreed──┘                        └──StepUpdated──► Conductor
//
// The Exchanger sends each rank its share of a gradient from the slab and receives its own share into an exchange
// buffer. The slab is then free, so slabs are a credit with clipping too. The Optimizer adds the parts in rank order in
// fp32 and updates its share. The Gatherer completes the tile from all ranks, for at most gathers_ahead layers at once.
// Embedding gradients travel as the rows of the batch, whose ids every rank knows. If the head shares the embedding's
// table, each rank adds the rows to the table's gradient first.
//
// All ranks begin their operations in one order. Gradients go from the last layer to the first, a shared table last.
// Updates and gathers follow the layers with clipping, and the exchanges without it. Operations may end in any order;
// their messages keep the order in which the operations began. At the end of each pass the Conductors agree on the sum
// of losses, stops, diagnoses and the pass (agreement.go). The Optimizers agree on norms. The next action follows from
// agreements, never from arrival times.
//
// A run that fails on one rank fails on all. The memory of operations in progress is freed when they are done
// (rank_comm.go). A fixed number of ranks gives the same bits from run to run. Another number of ranks changes the
// order of sums, and with it the bits.
//
// # Time
//
// One interface carries messages and works (carrier in process.go): protoactor and goroutines in a run, a virtual clock
// in a prediction (predict.go). A prediction runs the same cores, lanes and templates on device/virtual. Its events
// have virtual times, so the same code reports stalls and traces. Works on the host take the time that the machine's
// rates give for their bytes. Copies in one direction run one after the other; other works share resources by max-min
// fairness. mt plan --gpu prints predictions, mt tune searches with them, and mt bench predict compares them with
// measured runs.
//
// With Options.Timeline, a tracer (timeline*.go) follows each work, its slots and the message that caused it. Works on
// streams are enclosed by events. Launches of a training step use the marks of stalls instead. hub.now times works on
// the host; no other clock exists.
//
// It imports data, device, device/op, host, host/optim, base/parallel, base/cluster, layers, plan and schedule, and is
// the only package that imports protoactor. Invariant: every credit has one owner, one message that takes the credit
// and one message that returns it (credits_test.go).
package actors
