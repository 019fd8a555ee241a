// Command maxregisters reads what nvdisasm -c prints of kernels for sm_90a and fails if a
// thread uses a register that its warpgroup has given away by setmaxnreg:
//
//	nvdisasm -c KERNEL.cubin | maxregisters
//
// A warpgroup that gives registers away and uses one of them loses the context. ptxas chooses
// the registers, and some versions choose wrong ones.
//
// It imports nothing of mt. Invariant: what it cannot follow, a jump or a place that nothing jumps
// to, is a failure.
package main
