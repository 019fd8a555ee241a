// Package rates has the rates of machines: FLOP rates of devices, and bandwidths of device memory, link and host
// memory. Rates are measured by `mt doctor --save`, shipped for known GPUs and hosts, or written by hand. From the
// rates the package computes the time of an operation, a copy or an update that runs alone. The virtual device models
// concurrent operations.
//
// It imports device and device/op. Invariant: a Machine from Load or Find has passed Check, so no time computed from it
// is infinite, negative or NaN.
package rates
