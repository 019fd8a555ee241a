// Package ptx parses and executes PTX, the assembly of NVIDIA GPUs, in plain Go. It tests kernels on machines without
// a GPU. It imports base/bf16.
//
// Package ptx checks bounds, alignment, races in shared memory and reads of unwritten memory.
//
// Package ptx supports the output of clang for the kernels of device/cuda and their inline assembly: .entry functions
// without calls, textures or surfaces. Parse returns an error for an unknown instruction.
//
// For sm_90a it supports clusters of one block with these instructions:
//
//   - wgmma of bf16
//   - bulk copies with and without tensor maps
//   - mbarriers
//   - fences between the proxies
//   - setmaxnreg
//
// Asynchronous work completes as late as its waits allow, or in an order drawn from Launch.Seed. A kernel that
// touches its operands or results before the wait fails. The checks have these limits:
//
//   - The checks distinguish warps, not the threads of a warp. If one thread has waited for an mbarrier, its warp has.
//   - A fence.proxy.async takes effect for the warp once all threads that have stored execute it.
//   - The writing warp must execute the fence. A fence of the reader, after the barrier, has no effect.
//   - No fence is required between loads of shared memory and a bulk copy that overwrites the loaded bytes.
//   - Races between threads and bulk copies in global memory are not found.
//
// Invariant: the results of a correct kernel do not depend on Launch.Seed or Launch.Threads. An incorrect access ends
// the launch with an *Error. No launch touches memory outside the buffers of Launch.Memory.
package ptx
