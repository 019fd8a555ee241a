// Package reference computes the forward of all model families in float64, in plain Go. Gradients are finite
// differences of the forward. Only tests use it: they compare the templates of package layers with it.
//
// It imports model. Invariant: it shares no arithmetic with the code under test.
package reference
