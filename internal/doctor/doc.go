// Package doctor implements mt doctor. CheckUp examines the parts of the machine that determine a run's speed.
// SelfTest tests a device. SuperviseSelfTest runs the test in child processes, which call ServeSelfTest, and survives
// a device that is lost or hangs. Calibrate measures the machine and returns the rates for plans.
//
// It imports internal/run and everything that internal/run may import, device/conformance, base/cluster and
// plan/rates. The package internal/doctor/measure takes the times of the parts of training, such as matrix products
// and copies.
//
// Invariants: a part that is not ok has a remedy. A device passes the self test if it keeps the contract of package
// device, whatever its kind. The rates that Calibrate returns have passed rates.Machine.Check, and state whether they
// were measured, or why not.
package doctor
