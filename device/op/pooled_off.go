//go:build race

package op

// pooled: the race detector takes what goes from one goroutine to another through
// a pool for an order between the two, which would hide that streams lack one.
const pooled = false
