// Package appraise predicts how long the kernels of operations take on a GPU that is not present. It runs some blocks
// in the emulator's interpreter, counts the work of the whole launch, and computes times from the counts.
//
// A GPU (gpus.go) computes three things:
//
//   - the number of blocks that a multiprocessor holds
//   - a lower bound of the kernel's time, given by its busiest unit
//   - the expected time, from a replay of the warps of one multiprocessor and their waits
//
// wgmma, bulk copies and mbarriers count in both times. A wgmma makes 512 multiplications a cycle and quarter, an
// H100's dense peak in the datasheet. The four warps of a wgmma read the operands in shared memory once, 128 bytes a
// cycle. A replay slows wgmma down to the known rate of large matrix products, since a GPU lowers its clock when all
// tensor cores are busy. Bulk copies bypass the first-level cache, and move 128 bytes of shared memory a cycle.
//
// These effects are left out:
//
//   - how wgmma of several warpgroups take turns (they queue as they are issued), and bank conflicts of their operands
//   - limits on concurrent bulk copies, and how fast their unit starts them
//   - clusters and multicast
//   - how ptxas serializes wgmma if it must
//
// The latencies of mbarriers, bulk copies and the end of a wgmma are estimates.
//
// For kernels whose blocks wait for each other (attention_gradients.cuh), the waits are left out. Each block is
// counted and replayed as if its waits were satisfied. Adding to a sum in device memory counts as 32 bytes that pass
// to the L2 cache; the speed of these additions is unknown.
//
// It may import the kernels, the operations, the emulator and the profiles of GPUs in plan/rates.
//
// Invariant: results for a launch follow from the operation, its shape and the kernels alone. The same kernel has the
// same times on every machine and in every run.
package appraise
