// Package openblas multiplies matrices with an OpenBLAS that it finds on the
// machine, or with another library that has the same functions, such as MKL.
// Benchmarks compare package gemm with it. Nothing that trains uses it.
//
// It may import device/cpu/gemm, base/parallel and purego; only bench
// imports it.
//
// Invariant: a Product means the same to both sides, Multiply and Gemm, and every
// address that is handed on is one of memory that the slices of the Product keep
// alive during the call.
package openblas
