// Package profile wraps a device so that every operation is timed where it
// runs, between two events on its stream.
//
// It imports device and device/op. Invariant: the wrapped device does what the device itself does,
// in the same order, and records two events more for each operation.
package profile
