// Package schedule lays out one pass over the layers of a model before it runs:
// which layer, or part of one, visits the device when, which launches that makes,
// and when weights and activations come and go.
//
// It imports nothing of this module: which visits a layer has, its kind says
// (layers.Kind). Invariant: the same Spec and the same micro-batches always give the
// same program. Neither a device nor an actor is needed to make one.
package schedule
