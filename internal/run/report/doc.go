// Package report tells people and programs of a run. An Observer hears of steps, evaluations, notes and
// the end; the progress line, metrics.jsonl, boards, samples, traces, the dashboard and the picture of the
// losses are observers.
//
// It imports settings and actors, and no other stage. Invariant: a report that fails is a note, and the run
// goes on; metrics.jsonl alone ends it, since no checkpoint may be ahead of its metrics.
package report
