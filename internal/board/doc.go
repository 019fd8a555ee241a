// Package board carries the numbers of a run to a program that shows them and that may be
// slow or absent: a database, or a server.
//
// It imports nothing of ours; what writes for one program (internal/trackio,
// internal/mlflow) imports it, and so does whoever has numbers.
//
// Invariant: whoever hands numbers over never waits, and a program that takes none costs
// one warning and a bounded amount of memory.
package board
