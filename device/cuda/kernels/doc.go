// Package kernels holds mt's own CUDA kernels. For every operation of package op it has three
// things:
//
//   - CUDA C: op.cu, or the file of a related operation
//   - the embedded PTX made from the CUDA C
//   - op.go, with the function that launches the operation and adds itself to Operations
//
// In bf16, one kernel can compute all gradients of attention for heads of up to 128 elements
// without softcap. Its blocks add to sums in device memory in a fixed order
// (attention_gradients.cuh). For other shapes one kernel computes the gradients of keys and values,
// and another the gradient of queries. GPUs of compute capability 9.0 have attention kernels of
// their own (attention_hopper.go, hopper.cuh).
//
// It imports device and device/op. A Launcher, which device/cuda implements, stands for the driver.
// Invariant: grids and partitions of sums follow from the shapes alone, so a kernel gives the same
// bits on every GPU of a kind.
//
// The script build.sh (task ptx) writes the PTX with Debian's clang-19 and no CUDA toolkit. The PTX
// has version 8.0 for sm_80. Every driver from CUDA 12.0 on loads it, and every newer GPU runs it.
package kernels
