// Package rates says what machines reach: how many products a second a device
// makes, how many bytes a second its memory, the link and the host's memory move.
// Measured by `mt doctor --save`, shipped for known GPUs and hosts, or written by
// hand. From them it tells how long an operation, a copy or an update takes by
// itself; what happens when several run at the same time is the business of the
// virtual device.
//
// It imports device and device/op. Invariant: a Machine that Load or Find returned
// has passed Check, so no time made of it is infinite, negative or NaN.
package rates
