// Package schedule lays out one pass over the layers of a model before it runs:
// which layer, or part of one, visits the device when, which launches that makes,
// and when weights and activations come and go.
//
// It imports nothing of this module: a layer's kind says which visits the layer has
// (layers.Kind). Invariant: the same Spec and the same micro-batches always give the
// same program. Neither a device nor an actor is needed to make one.
package schedule
