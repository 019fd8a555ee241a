//go:build race

package op

// pooled is false in race builds. The race detector takes it for an order between
// two goroutines that a value goes from one to the other through a pool, and that
// would hide a missing order between streams.
const pooled = false
