// Package oracle holds every operation of the device contract in plain Go over
// float64, written for clarity alone. Tests compare devices with it.
//
// It imports the standard library only. Invariant: a function here is the
// definition of its operation, rounding left out; overwriting, accumulating and
// aliasing are as the contract in package device says.
package oracle
