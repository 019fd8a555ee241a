// Package op holds the operations that layers are made of, as values. There is one
// file for each operation (or a forward and its backward), with its arguments and
// the check of them (Check). Where a profile needs more than an operation's name,
// it also has its shape and FLOPs (Worker). Do enqueues an operation; Table is how
// a device finds the function that runs it.
//
// A new operation needs six files and no line elsewhere, since each implementation adds itself to a table:
//
//   - device/op/NAME.go: arguments, Check, and Work if a profile shows more than the name
//   - device/cpu/NAME.go
//   - device/cuda/kernels/NAME.cu and NAME.go; build.sh writes the PTX, and similar operations share a .cu
//   - a definition in float64 in device/conformance/oracle
//   - cases in device/conformance/operations/NAME.go
//
// Tests fail where a device has an operation without cases, or lacks one that has cases. check_test.go tests
// what Check refuses.
//
// Conventions. A tensor must not be freed before an event that was recorded after
// the operation. Tensors are dense and row-major unless a stride says otherwise.
// "act" is the compute dtype (fp32 or bf16), that of activations and of weights
// with two dimensions; the weights of norms, and biases, are fp32. Sums, norms,
// softmax and losses are computed in fp32 and rounded once, when they are stored.
// The gradient rule: gradients of parameters ACCUMULATE in fp32, gradients of
// activations OVERWRITE, unless a field says otherwise. Every reduction has a
// partition that depends on the shapes alone, so its bits are the same for any
// number of threads.
//
// It imports device. Invariant: nothing here reads device memory. Check refuses
// what shapes, types and lengths show to be wrong, for all devices alike. The
// values of index tensors are checked by devices that can read them, and a device
// itself refuses what it alone cannot do.
package op
