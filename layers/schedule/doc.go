// Package schedule lays out one pass over the layers of a model before it runs:
// which layer, or part of one, visits the device when, which launches that makes,
// and when weights and activations come and go.
//
// A step's program is the embedding and all blocks forward, the head forward and backward at
// once, then the blocks and the embedding backward. All micro-batches pass through one visit
// before the next visit begins, so a layer's weights travel once for all of them.
//
//   - Zigzag: each visit takes the micro-batches in the reverse order of the visit before, so the
//     activations computed last are read first.
//   - Lanes: all visits take them in one order, so micro-batches follow each other from device to device.
//
// A head in parts (pipeline.head_shards) streams ranges of the vocabulary like blocks: one sweep for the
// losses, and one in reverse for the gradient, which begins with the tiles still in the slots.
//
// Residency follows Belady's rule on the known sequence (residency.go). It depends on the layers, the
// sizes of the micro-batches, the depths and the slots' contents after the pass before, never on timing.
//
// It imports nothing of this module: a layer's kind says which visits the layer has
// (layers.Kind). Invariant: the same Spec and the same micro-batches always give the
// same program. Neither a device nor an actor is needed to make one.
package schedule
