// Package gemm multiplies row-major matrices on the CPU in fp32. Operands and results are fp32 or bf16.
//
// It may import base/parallel and golang.org/x/sys/cpu.
//
// Products of bf16 by bf16 use an instruction that multiplies pairs of bf16, on processors where it is fast. All
// other products are widened to fp32. Both give the same bits, except that the pair instruction treats numbers below
// 2^-126 as 0 (pairs.go).
//
// Invariant: the shape, the transpositions and the instruction set alone determine the order in which the products of
// an element are added. A result has the same bits for any number of threads.
//
// B is cut into panels as wide as a micro-kernel, A into tiles as high as a micro-kernel, and K into blocks of at
// most 512. All threads pack B into a shared buffer. Then each thread takes blocks of rows and packs the matching
// part of A, unless kernels can read A in place. It runs a kernel for every tile and panel. The scheme is Goto and
// van de Geijn's, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 34(3), 2008).
package gemm

//go:generate go run -C ../../../tools/_asm ./gemm -out ../../device/cpu/gemm/kernels_amd64.s -stubs ../../device/cpu/gemm/kernels_amd64.go -pkg gemm
//go:generate go run -C ../../../tools/_asm ./arm64 -pkg gemm -out ../../device/cpu/gemm/kernels_arm64.s -stubs ../../device/cpu/gemm/kernels_arm64.go
