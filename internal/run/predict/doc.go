// Package predict prints what a run would take: memory, disk space, and the time of a step, measured here
// or predicted for another machine.
//
// It imports save. Invariant: nothing is trained and nothing is written but the trace that is asked for.
package predict
