// Package operations is the table of operations that every device is tested with:
// shapes of 1, odd sizes and sizes just beside those of the tiles that kernels work
// in, strides, windows, ragged sequences, and every aliasing that the contract
// allows.
//
// It imports device, device/op and device/conformance/oracle. Tests import it, and so does the
// self test of mt doctor.
//
// Invariant: every array an operation may see has sentinels behind it, and
// every array it must not write is compared bit for bit afterwards.
package operations
