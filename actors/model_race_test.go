//go:build race

package actors

// The race detector finds nothing in cores that run on one goroutine each, and
// slows them tenfold: fewer runs, all of them in the build without it.
const interleavings = 5_000
