// Package calibrate measures a machine and makes of it the rates that plans are computed with.
//
// It imports internal/measure, internal/run/trials, plan/rates, data and what these may. Invariant: a Machine that it
// returns has passed Check, and each figure says that it was measured, or why not.
package calibrate
