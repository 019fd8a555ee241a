// Package silicon says how long kernels that the emulator has counted take on GPUs that are not
// there: how many blocks a multiprocessor holds, the time that a kernel cannot beat, because one
// unit of the GPU is busy all the while, and the time that it should reach, by a replay of what
// the warps of one multiprocessor do and wait for.
//
// It may import the interpreter and the profiles of GPUs in plan/rates.
//
// Invariant: it computes from counts, traces and tables alone, so the same kernel has the same
// times on every machine and in every run.
package silicon
