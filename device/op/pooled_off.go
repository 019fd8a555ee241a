//go:build race

package op

// pooled is false in race builds. The race detector treats a value that passes through a pool as an order between the
// two goroutines. That would hide a missing order between streams.
const pooled = false
