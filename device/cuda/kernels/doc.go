// Package kernels holds mt's own CUDA kernels: for every operation of
// package op its CUDA C (op.cu, or that of another operation which it shares), the
// PTX made from it (embedded) and the function that launches it (op.go), which adds
// itself to Operations.
//
// In bf16, one kernel computes all gradients of attention for heads of up to 128 elements without caps.
// Its blocks add to sums in a fixed order (attention_gradients.cuh). Other shapes compute the gradients of
// keys and of queries apart. GPUs of compute capability 9.0 have attention kernels of their own
// (attention_hopper.go, hopper.cuh).
//
// It imports device and device/op: a Launcher, which device/cuda implements, stands for
// the driver. Invariant: grids and partitions of sums follow from the shapes
// alone, so a kernel gives the same bits on every GPU of a kind.
//
// The PTX is written by build.sh (task ptx) with Debian's clang-19 and no CUDA
// toolkit: version 8.0 for sm_80, which every driver from CUDA 12.0 on loads and
// every newer GPU runs.
package kernels
