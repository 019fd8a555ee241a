// Package device is the contract between the pipeline and the devices that compute: memory counted by purpose,
// streams, events, asynchronous copies and operations. Operations are values (device/op).
//
// The semantics are CUDA's. Work on one stream runs in order. Only events order work on different streams. device/cpu
// and device/cuda implement the contract.
//
// It imports base/accounts and base/human. Invariant: no call waits for the device, except Stream.Sync, Free and the
// Close methods.
package device
