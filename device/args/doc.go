// Package args checks the arguments of operations: what shapes, types and
// lengths say of them, as device.Ops has it, for every device alike.
//
// It imports device. Invariant: nothing here reads memory. The values of index
// tensors are for those who can read them, and what only one device cannot do
// is that device's to refuse.
package args
