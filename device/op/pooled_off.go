//go:build race

package op

// pooled is false in race builds: operations are not reused. The race detector takes a value that passes through a pool
// for synchronization of the two goroutines. That would hide a missing event between streams.
const pooled = false
