// Package selftest checks a device on the machine it is in: what mt doctor
// --selftest runs from the shipped binary. It computes the table of operations,
// proves the order of streams, compares a short training run with the CPU
// device, and measures what the device can do. Run does this in one process.
// Supervise does it in child processes, which call Serve, and survives a device
// that is lost or hangs.
//
// It imports device/conformance/operations, internal/machine, internal/run and,
// for a lock, checkpoint. Invariant: nothing here depends on the device's kind; a
// device passes when it keeps the contract of package device.
package selftest
