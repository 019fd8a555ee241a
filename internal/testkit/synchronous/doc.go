// Package synchronous is one training step to read from top to bottom, as if everything fitted on the device. A batch
// goes forward and backward through all layers, gradients are copied to the host, measured and clipped, and the
// optimizer updates the weights. There is one stream and one goroutine, and everything happens in turn; there are no
// slots, credits or messages. Read step.go first; memory.go allocates what the step uses.
//
// Layer 0 is the embedding, and the last one is the head. A decoder block is one layer, with experts two. A head may
// have parts, a layer with experts always has.
//
// No command of mt trains with it. Readers begin here, and tests compare the pipeline of package actors with it. It
// imports plan, layers, host, data, device and model, and neither schedule nor actors: it states the order of layers
// and micro-batches on its own.
//
// Invariant: losses, gradient norms, weights and moments have the pipeline's bits, for all its depths, bindings and
// levels of recomputation. One case differs. If a gradient is not finite and nothing is clipped, the pipeline ends its
// run; the step here changes nothing.
package synchronous
