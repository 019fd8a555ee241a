// Package virtual is a device that computes nothing: what is enqueued takes the time
// that it is said to take, on a clock of its own (internal/virtual).
//
// Its memory has sizes and addresses and no content. Streams, events and the order of
// notifications are as the contract says, so whoever drives a device drives this one
// with the same code, and learns when everything would have happened.
//
// It imports device, device/op, plan/rates, internal/virtual and internal/accounts.
// Invariant: nothing waits on the machine's clock, and no byte of any memory is touched.
package virtual
