// Package schedule lays out one pass over the layers of a model before it runs:
// which layer, or part of one, visits the device when, which launches that makes,
// and when weights and activations come and go. A program follows from the layers,
// the sizes of the micro-batches and the numbers of slots alone, never from timing,
// and needs neither a device nor the actors that carry it out.
package schedule
