// Package resolve settles every auto of a run: its plan, its numerics and its depths, which config.yaml
// shows.
//
// It imports resume. Invariant: a Resolved fits into memory, and nothing is allocated yet.
package resolve
