//go:build !race

package op

// pooled says that what is given back is used again.
const pooled = true
