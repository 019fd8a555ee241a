// Package conformance tests every device against the contract.
//
// Operations is the table of operations: shapes of 1, odd sizes and sizes just beside those of the
// tiles that kernels work in, strides, windows, ragged sequences, and every aliasing that the contract
// allows. The oracle beside this package defines what they compute. Streams is the table of everything
// else: memory and its budget, streams, events, notifications, errors.
//
// It imports device, device/op and device/conformance/oracle. Tests import it, and so does the
// self test of mt doctor; so it does without the package testing.
//
// Invariants: every array an operation may see has sentinels behind it, and
// every array it must not write is compared bit for bit afterwards. The tests of streams use a device by
// its contract alone, and time by order alone, never by the clock.
package conformance
