// Package ranks keeps the ranks of one run in step: they exchange values, stop together and end together. A process
// that trains alone is a group of one rank.
//
// It imports settings and actors. Invariant: all ranks end with the same error, or one rank has aborted the run for
// all.
package ranks
