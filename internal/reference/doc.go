// Package reference computes the forward of all families in float64, in the
// plainest Go there is, and gradients by finite differences of it. Tests use it
// to judge the templates; nothing else does.
//
// It imports model. Invariant: it shares no arithmetic with what it judges.
package reference
