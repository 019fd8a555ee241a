// Package layers holds the stateless templates: forward and backward of each
// layer kind, written over device.Ops. Weights are bound to a template when
// they arrive; nothing here allocates, waits or keeps anything.
//
// It imports device and model. Invariant: a template enqueues on the stream it
// is given and touches only tensors it was given.
package layers
