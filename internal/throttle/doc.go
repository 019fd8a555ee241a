// Package throttle makes a machine slower than it is, so that a run on the CPU waits for
// copies and updates as a run on a GPU does: for trying out what depths do, and for
// comparing predictions with measurements, where there is no GPU.
//
// It imports host/optim and plan/rates. Invariant: what is computed stays the same bit for
// bit; only the time changes.
package throttle
