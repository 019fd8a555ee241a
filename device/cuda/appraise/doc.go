// Package appraise says how long the kernels of operations take on a GPU that is not there. It runs a part of
// their blocks in the emulator's interpreter, counts what the whole launch does, and times the counts.
//
// A GPU (gpus.go) gives how many blocks a multiprocessor holds, the time that a kernel cannot beat, because one
// unit of the GPU is busy all the while, and the time that it should reach, by a replay of what
// the warps of one multiprocessor do and wait for.
//
// wgmma, bulk copies and mbarriers are a part of both times. A wgmma takes 512 multiplications
// a cycle of a quarter, which is the datasheet's dense peak of an H100, and reads its operands in
// shared memory once for its four warps, 128 bytes a cycle; a replay slows it down to what products
// of large matrices are known to reach, since a GPU lowers its clock when all tensor cores are busy. Bulk copies
// pass the first-level cache, and move 128 bytes of shared memory a cycle. What is left out: how
// wgmma of several warpgroups take turns (they queue as they are issued), bank conflicts of its operands,
// limits on bulk copies under way and on how fast the unit for them starts, clusters and multicast, what ptxas does where it must serialise
// wgmma, and that the latencies of mbarriers, bulk copies and the end of a wgmma are estimates.
//
// Of kernels whose blocks wait for each other (attention_gradients.cuh) it is left out what they wait: each block is counted and replayed as if all that it waits
// for had been done. Adding to a sum in device memory counts as 32 bytes that pass to the L2 cache; how fast that adds is not known.
//
// It may import the kernels, the operations, the emulator and the profiles of GPUs in plan/rates.
//
// Invariant: what it says of a launch follows from the operation, its shape and the kernels alone, so the same
// kernel has the same times on every machine and in every run.
package appraise
