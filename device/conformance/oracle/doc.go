// Package oracle defines every operation of the device contract in plain Go on
// float64, written for clarity alone. Tests compare devices with it.
//
// It imports the standard library only. Invariant: a function here is the
// definition of its operation without rounding; what it overwrites, what it adds to
// and what may be aliased is as package op says.
package oracle
