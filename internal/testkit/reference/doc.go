// Package reference computes the forward of all model families in float64, in the
// plainest Go, and gradients as finite differences of it. It serves tests alone,
// which compare the templates of package layers with it.
//
// It imports model. Invariant: it shares no arithmetic with what it judges.
package reference
