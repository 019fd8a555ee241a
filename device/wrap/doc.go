// Package wrap has devices that wrap another device. Profile records an event before and after
// every operation and so times it. Fail and FailLate make one call fail, for tests that try every
// call in turn.
//
// It imports device, device/op and base/accounts. Programs import it only for Profile. Invariant:
// up to the failing call the wrapper makes the same calls as its user, in the same order. A profile
// also records two events for each operation.
package wrap
