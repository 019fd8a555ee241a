// Package layers holds the stateless templates: forward and backward of each
// layer kind, written in the operations of device/op. Weights, gradients and
// activations are passed to each call; nothing here allocates, waits or keeps
// anything. What a run has to know of a layer before it runs, the layer's Kind says.
//
// It imports device, device/op, model, schedule and internal/base/bf16. Invariant: a
// template enqueues on the stream it is given and touches only tensors it was given.
package layers
