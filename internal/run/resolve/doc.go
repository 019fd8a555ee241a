// Package resolve resolves every auto of a run: the plan, its numerics and its depths, as config.yaml shows them. For
// training on pairs it also computes log p of every answer by the reference model. A forward pass over all pairs
// finds these values and caches them beside the token caches (pass.go).
//
// It imports resume. Invariant: a Resolved fits into memory, and nothing stays allocated: the pass frees its memory
// before the run allocates its own.
package resolve
