// Package report informs people and programs about a run. An Observer receives steps, evaluations, notes and the end.
// Observers are the progress line, metrics.jsonl, boards, samples, traces, the dashboard and the picture of the
// losses.
//
// Boards are other programs that show runs: TensorBoard reads event files (Events), and an MLflow server has the REST
// API 2.0 (mlflow.org/docs/latest/api_reference/rest-api.html). A Queue sends numbers to a program that may be slow
// or absent.
//
// It imports settings and actors, and no other stage. Invariants:
//   - A failed report is a note, and the run continues. Only a failure of metrics.jsonl ends the run, since no
//     checkpoint may be ahead of its metrics.
//   - A run never waits for a board. A board that accepts nothing costs one warning and bounded memory.
//   - An event file consists of whole records.
//   - A request is bounded in time and size. No error shows a password or a token.
package report
