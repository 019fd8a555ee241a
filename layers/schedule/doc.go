// Package schedule plans one pass over the layers of a model before it runs. It decides the order of visits to layers
// or parts of layers, their launches, and the times when weights and activations come and go.
//
// A step's program goes forward through the embedding and all blocks. The head goes forward and backward at once. Then
// blocks and embedding go backward. All micro-batches of a round pass through one visit before the next visit begins, so a
// layer's weights travel once for all of them. Most steps have one round.
//
//   - Zigzag: each visit takes the micro-batches in the reverse order of the previous visit. So the activations
//     computed last are read first.
//   - Lanes: all visits take the micro-batches in one order, so micro-batches follow each other from device to device.
//
// A step may have rounds (Spec.PerRound). Each takes some of the micro-batches forward and backward through all layers. All
// rounds but the first continue the sums of gradients (Visit.Resumes).
//
// A head in parts (pipeline.head_shards) streams ranges of the vocabulary like blocks. One sweep over all ranges
// computes the losses. A second sweep, in reverse, computes the gradient. It begins with the tiles that are still in the
// slots. With several lanes the ranges may be on different lanes (Layer.Lanes). Each lane passes a copy of the head's
// input, and the sums over the ranges so far, to the next.
//
// Tensors that layers keep for their backward can have slots of their own, for a share of the micro-batches (Spec.Kept). From there
// it spills to the host and comes back.
//
// Residency follows Belady's rule on the known sequence (residency.go). It depends on the layers, the sizes of the
// micro-batches, the depths and the slots' contents after the previous pass, never on timing.
//
// It imports nothing of this module: a layer's kind lists the layer's visits (layers.Kind). Invariant: the same Spec
// and the same micro-batches always give the same program. Planning needs neither a device nor an actor.
package schedule
