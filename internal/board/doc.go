// Package board shows the numbers of a run in other programs: event files for TensorBoard
// (Events), and an MLflow server, by its REST API 2.0
// (mlflow.org/docs/latest/api_reference/rest-api.html). A Queue carries numbers to a program
// that may be slow or absent.
//
// It imports nothing of ours; whoever has numbers imports it.
//
// Invariants: whoever hands numbers over never waits, and a program that takes none costs
// one warning and a bounded amount of memory. An event file is a sequence of whole records. A
// request is bounded in time and in size, and no error shows a password or a token.
package board
