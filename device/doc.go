// Package device is the contract between the pipeline and whatever computes:
// memory counted by purpose, streams, events, asynchronous copies and operations,
// which are values (device/op).
//
// The semantics are CUDA's. Work on one stream runs in order. Work on different
// streams is ordered by events alone, and nothing else is promised. device/cpu and
// device/cuda implement the contract.
//
// It imports base/human alone. Invariant: no call here waits for the device,
// except Stream.Sync, Free and the Close methods.
package device
