// Package ptx parses PTX, the assembly of NVIDIA GPUs, and executes it in plain
// Go, with memory and race checks, so that kernels are tested where there is no
// GPU. It imports nothing of this module.
//
// It understands what clang writes for the kernels of device/cuda and what
// people write in inline assembly there: one level of .entry functions without
// calls, textures or surfaces. An instruction that it does not know is an error
// of Parse.
//
// Invariant: the results of a correct kernel do not depend on Launch.Seed or
// Launch.Threads, and an incorrect access ends the launch with an *Error; it
// never touches memory outside of the buffers that Memory names.
package ptx
