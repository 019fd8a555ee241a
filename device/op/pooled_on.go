//go:build !race

package op

// pooled reports whether Do reuses the values to which it copies operations.
const pooled = true
