// Package virtual is virtual time: a clock, and a device whose work takes time on it and computes nothing.
//
// The clock (clock.go) is not the machine's: a work takes the time that it is said to take, and no longer
// to compute than that needs. Works that go on at the same time share resources, such as the bandwidth of
// the host's memory, and slow each other down where a resource has not enough for all.
//
// The device's memory has sizes and addresses and no content. Streams, events and the order of
// notifications are as the contract says, so whoever drives a device drives this one
// with the same code, and learns when everything would have happened.
//
// It imports device, device/op, plan/rates and base/accounts. Invariant: the same calls give the same
// times. Nothing waits on the machine's clock, and no byte of any memory is touched.
package virtual
