// Package gemm multiplies row-major matrices on the CPU, in fp32, with operands
// and results in fp32 or bf16.
//
// It may import base/parallel and golang.org/x/sys/cpu.
//
// Products of bf16 by bf16 are of pairs of bf16 where the processor has an
// instruction for that which is worth it; all others are of fp32. The bits are the same, but
// that pairs take numbers below 2^-126 for 0 (pairs.go).
//
// Invariant: the order in which the products of one element are added depends
// on the shape, the transpositions and the instruction set alone, never on the
// number of threads, so a result has the same bits on one thread and on many.
//
// B is cut into panels of as many columns as a micro-kernel is wide, A into
// tiles of as many rows as it is high, K into blocks of at most 512. All
// threads pack B into a shared buffer; then each takes blocks of rows, packs
// the matching part of A, unless it can be read where it lies, and runs a kernel
// for every tile and panel. The scheme is Goto and van de Geijn's, "Anatomy of
// High-Performance Matrix Multiplication" (ACM TOMS 34(3), 2008).
package gemm

//go:generate go run -C ../../../tools/_asm ./gemm -out ../../device/cpu/gemm/kernels_amd64.s -stubs ../../device/cpu/gemm/kernels_amd64.go -pkg gemm
//go:generate go run -C ../../../tools/_asm ./arm64 -pkg gemm -out ../../device/cpu/gemm/kernels_arm64.s -stubs ../../device/cpu/gemm/kernels_arm64.go
