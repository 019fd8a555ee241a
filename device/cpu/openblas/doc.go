// Package openblas multiplies matrices with an OpenBLAS that it finds on the
// machine, for benchmarks to compare package gemm with, or with another library of
// the same functions, such as MKL. Nothing that trains uses it.
//
// It may import device/cpu/gemm, internal/parallel and purego; only bench
// imports it.
//
// Invariant: a Product means the same to both sides, Multiply and Gemm, and
// every address that it hands on is that of memory the slices of the Product
// keep alive during the call.
package openblas
