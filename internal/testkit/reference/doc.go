// Package reference computes the forward of all model families in float64, in plain Go, and gradients as its finite
// differences. Only tests use it: they compare the templates of package layers with it.
//
// It imports model. Invariant: it shares no arithmetic with the code under test.
package reference
