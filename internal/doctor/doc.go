// Package doctor is behind mt doctor. CheckUp looks at the parts of the machine that
// a run's speed depends on. SelfTest tests a device; SuperviseSelfTest does so in child
// processes, which call ServeSelfTest, and survives a device that is lost or hangs.
// Calibrate measures the machine and returns the rates that plans are computed with.
//
// It imports internal/run and what that may, device/conformance, base/cluster
// and plan/rates; its own package measure times the work.
//
// Invariants: a part that is not ok has a remedy. A device passes the self test when it
// keeps the contract of package device, whatever its kind. The rates that Calibrate
// returns have passed Check, and each says that it was measured, or why not.
package doctor
