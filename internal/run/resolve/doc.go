// Package resolve settles every auto of a run: its plan, its numerics and its depths, which config.yaml
// shows. For training on pairs it also finds what the plan says is missing: log p of every answer by the
// reference model, from a forward pass over all pairs, which is kept beside the token caches (pass.go).
//
// It imports resume. Invariant: a Resolved fits into memory, and nothing stays allocated: the pass gives
// its memory back before the run takes its own.
package resolve
