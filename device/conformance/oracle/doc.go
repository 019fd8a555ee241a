// Package oracle defines every operation of the device contract in plain Go on float64. Clarity is its only goal.
// Tests compare devices with it.
//
// It imports the standard library only. Invariant: a function defines its operation without rounding. Package op
// states which arguments are overwritten, accumulated or aliased.
package oracle
