// Package pairs makes what training on pairs compares with: log p of every answer by the reference model,
// found by a forward pass over all pairs before training and kept beside the token caches.
//
// The pass is planned with the run (resolve/references.go).
//
// It imports resolve. Invariant: all memory of the pass is given back before the run takes its own.
package pairs
