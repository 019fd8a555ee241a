// Package kernels holds mt's own CUDA kernels: for every operation of
// device.Ops its CUDA C (op.cu), the PTX made from it (op.ptx, embedded) and
// the typed function that launches it (op.go).
//
// It imports device only: a Launcher, which device/cuda implements, stands for
// the driver. Invariant: grids and partitions of sums follow from the shapes
// alone, so a kernel gives the same bits on every GPU of a kind.
//
// The PTX is written by build.sh (task ptx) with Debian's clang-19 and no CUDA
// toolkit: version 8.0 for sm_80, which every driver from CUDA 12.0 on loads and
// every newer GPU runs.
package kernels
