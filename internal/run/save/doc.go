// Package save holds the weights of a run in memory and brings them from and into files: checkpoints,
// the final model, the best one, averages, states on disks, and the parts of other ranks.
//
// It imports resolve. Invariant: rank 0 alone writes the output directory, and a file there is whole or
// not there, whatever happens.
package save
