// Package openblas multiplies matrices with an OpenBLAS on the machine, or with another library that has the same
// functions, such as MKL. Benchmarks compare package gemm with it. Training does not use it.
//
// It may import device/cpu/gemm, base/parallel and purego; only bench imports it.
//
// Invariant: Multiply and Gemm compute the same Product. Every address passed to the library points into the
// Product's slices, which stay alive during the call.
package openblas
