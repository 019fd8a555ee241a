// Package virtual simulates time. It has a clock, and a device whose work takes time on that clock
// but computes nothing.
//
// The clock (clock.go) is virtual: advancing it takes only the time to compute the next event. A
// work (computation or copy) lasts as long as it states. Concurrent works share resources, such as
// the bandwidth of host memory. They slow each other down when a resource is used up.
//
// The device's memory has sizes and addresses, but no content. Streams, events and the order of
// notifications follow the device contract. So the same code drives a real device and this one, and
// learns when everything would happen.
//
// It imports device, device/op, plan/rates and base/accounts. Invariant: the same calls give the
// same times. Nothing waits on the real clock, and no byte of device memory is accessed.
package virtual
