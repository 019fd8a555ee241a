// Package fault wraps a device so that one of its calls fails, for tests that
// try every call in turn.
//
// It imports device and device/op only. Invariant: without a fault, the wrapped
// device does what the device itself does, in the same order.
package fault
