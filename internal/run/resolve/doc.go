// Package resolve resolves every auto of a run: the plan, its numerics and its depths, as config.yaml shows them. For
// training on preference pairs (DPO) it also makes the reference pass: a forward pass of the reference model over all
// pairs, before training. The pass gives log p of every answer, which is cached beside the token caches (pass.go).
//
// It imports resume. Invariant: a Resolved fits into memory, and nothing stays allocated: the reference pass frees its
// memory before the run allocates its own.
package resolve
