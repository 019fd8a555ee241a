// Package save holds the weights of a run in memory and moves them to and from files. The files are checkpoints, the
// final and the best model, averages, states on disks, and the shares of other ranks.
//
// Rank 0 also reads checkpoints for ranks that do not see the directory (staging.go, restore.go).
//
// It imports resolve. Invariant: only rank 0 writes the output directory, and a file there is complete or absent.
package save
