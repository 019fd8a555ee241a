// Package conformance tests every device against the contract.
//
// Operations is the table of operations. Its cases have shapes of 1, odd sizes, sizes next to the kernels' tile
// sizes, strides, windows, ragged sequences, and every aliasing that the contract allows. The oracle package defines
// the expected results. Streams is the table of everything else: memory and its budget, streams, events,
// notifications, errors.
//
// It imports device, device/op and device/conformance/oracle. Tests and the self test of mt doctor import it. So it
// does not import the package testing.
//
// Invariants: every array that an operation may access has sentinels behind it. Every array that an operation must
// not write is compared bit for bit afterwards. The stream tests use only the device contract. They test order, and
// never read the clock.
package conformance
