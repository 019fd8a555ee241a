// Package ptx parses PTX, the assembly of NVIDIA GPUs, and executes it in plain
// Go, with memory and race checks, so that kernels are tested where there is no
// GPU. It imports nothing of this module.
//
// Bounds, alignment, races in shared memory and reads of unwritten memory are checked.
//
// It understands what clang writes for the kernels of device/cuda and what
// people write in inline assembly there: one level of .entry functions without
// calls, textures or surfaces. An instruction that it does not know is an error
// of Parse.
//
// Of sm_90a it knows wgmma of bf16, bulk copies with and without tensor maps,
// mbarriers, the fences between the proxies and setmaxnreg, for clusters of
// one block. Asynchronous work is done as late as its waits allow, or in an order
// that Launch.Seed draws, and what touches its operands or its results meanwhile is
// an error. Warps are told apart there, threads of one warp are not: where one
// thread has waited for an mbarrier, its warp has. A fence.proxy.async counts for
// the warp if all its threads that have stored execute it, and it has to be the
// writer that does: one behind the barrier, on the reader's side, does not count,
// nor is one wanted between loads of shared memory and a bulk copy over what they
// read. Nothing is checked between the proxies in global memory.
//
// Invariant: the results of a correct kernel do not depend on Launch.Seed or
// Launch.Threads, and an incorrect access ends the launch with an *Error; it
// never touches memory outside of the buffers that Memory names.
package ptx
