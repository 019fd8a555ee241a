//go:build race

package testkit

// Race says whether the race detector is built in. Tests then take ten times as long, and more memory.
const Race = true
