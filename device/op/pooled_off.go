//go:build race

package op

// pooled is false in race builds: Do does not reuse operations. The race detector would take a
// value passed through a pool for synchronization of two goroutines. That would hide a missing
// event between streams.
const pooled = false
