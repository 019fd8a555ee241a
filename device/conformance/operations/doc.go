// Package operations is the table of operations that every device is tested with:
// shapes with 1, odd sizes and sizes beside the tiles, strides, windows, ragged
// sequences, and every aliasing that the contract allows.
//
// It imports device, device/op and device/conformance/oracle; tests import it, and the self test of mt
// doctor.
// Invariant: every array an operation may see has sentinels behind it, and
// every array it must not write is compared bit for bit afterwards.
package operations
