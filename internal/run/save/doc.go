// Package save holds the weights of a run in memory and brings them from and into files: checkpoints,
// the final model, the best one, averages, states on disks, and the parts of other ranks.
//
// Rank 0 also reads checkpoints for ranks that do not see the directory (staging.go, restore.go).
//
// It imports resolve. Invariant: rank 0 alone writes the output directory, and a file there is whole or
// not there, whatever happens.
package save
