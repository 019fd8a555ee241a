// Package report tells people and programs of a run. An Observer hears of steps, evaluations, notes and
// the end; the progress line, metrics.jsonl, boards, samples, traces, the dashboard and the picture of the
// losses are observers.
//
// Boards are other programs that show runs: event files for TensorBoard (Events), and an MLflow server, by
// its REST API 2.0 (mlflow.org/docs/latest/api_reference/rest-api.html). A Queue carries numbers to a
// program that may be slow or absent.
//
// It imports settings and actors, and no other stage. Invariants: a report that fails is a note, and the run
// goes on; metrics.jsonl alone ends it, since no checkpoint may be ahead of its metrics. A run never waits
// for a board, and a board that takes nothing costs one warning and a bounded amount of memory. An event
// file is a sequence of whole records. A request is bounded in time and in size, and no error shows a
// password or a token.
package report
