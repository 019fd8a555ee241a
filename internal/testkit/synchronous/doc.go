// Package synchronous is one training step that can be read from top to bottom, as
// it would be if everything fitted on the device: a batch goes forward and backward
// through all layers, gradients come to the host, are measured and clipped, and the
// optimizer updates the weights. One stream, one goroutine, one thing after the other; no slots,
// no credits, no messages. Read step.go first; memory.go puts things where the step
// finds them.
//
// Layer 0 is the embedding, the last one the head; a decoder block is one layer, and
// one with experts is two. A head may come in parts, a layer with experts always does.
//
// No command of mt trains with it. It is where a reader begins, and what tests
// hold the pipeline of package actors against. It imports plan, layers, host, data,
// device and model, and neither schedule nor actors: in which order layers are
// visited and micro-batches are taken is said here a second time.
//
// Invariant: losses, gradient norms, weights and moments have the pipeline's bits,
// for all its depths, bindings and levels of recomputation. (Where a gradient is not
// finite and nothing is clipped, the pipeline ends its run; the step here changes
// nothing.)
package synchronous
