//go:build !race

package actors

// interleavings is how many random runs the model test plays.
const interleavings = 100_000
