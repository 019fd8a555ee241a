//go:build !race

package op

// pooled reports whether arguments return to a pool for reuse.
const pooled = true
