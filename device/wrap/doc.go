// Package wrap puts something between a device and whoever drives it: Profile times every operation
// where it runs, between two events on its stream; Fail and FailLate make one call fail, for tests
// that try every call in turn.
//
// It imports device, device/op and base/accounts; what a program imports it for is Profile alone.
// Invariant: the wrapped device does what the device itself does, in the same order, up to the call
// that is made to fail. A profile records two events more for each operation.
package wrap
