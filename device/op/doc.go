// Package op holds the operations of layers as values. Each operation (or a forward with its backward) has one file
// with the arguments and their Check. Operations whose cost depends on the shape also report shape and FLOPs
// (Worker). Do enqueues an operation. With a Table a device finds the function that runs an operation.
//
// A new operation needs these files. Each implementation adds itself to a table:
//
//   - device/op/NAME.go: arguments, Check, and Work if a profile shows more than the name
//   - device/cpu/NAME.go
//   - device/cuda/kernels/NAME.cu and NAME.go; build.sh writes the PTX, and similar operations share a .cu
//   - a definition in float64 in device/conformance/oracle
//   - cases in device/conformance/NAME.go
//   - its name in internal/doctor/measure/operations.go, so that mt doctor measures it
//
// Tests fail if a device has an operation without cases, or has cases without the operation. check_test.go tests
// which arguments Check refuses.
//
// Conventions:
//
//   - A tensor must not be freed before an event that was recorded after the operation.
//   - Tensors are dense and row-major unless a stride says otherwise.
//   - "act" is the compute dtype (fp32 or bf16) of activations and of two-dimensional weights. Norm weights and biases are
//     fp32.
//   - Sums, norms, softmax and losses are computed in fp32 and rounded once, when they are stored.
//   - Gradients of parameters ACCUMULATE in fp32, and gradients of activations OVERWRITE, unless a field says otherwise.
//   - Every reduction is partitioned by the shapes alone, so its bits are the same for any number of threads.
//
// It imports device and base/human. Invariant: no function here reads device memory. Check refuses arguments whose
// shapes, types or lengths are wrong on every device. Devices that can read index tensors check their values. A
// device itself refuses arguments that only it cannot handle.
package op
