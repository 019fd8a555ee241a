//go:build !race

package testkit

// Race says whether this is a build with the race detector, under which a test
// takes ten times as long and memory of its own.
const Race = false
