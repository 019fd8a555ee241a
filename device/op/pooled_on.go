//go:build !race

package op

// pooled says whether arguments are put back into a pool and used again.
const pooled = true
