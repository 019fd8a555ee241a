// Package optim defines optimizers, their state, and the arithmetic of updates and gradients. The state beside the
// weights is stored in planes.
//
// It may import model, base/bf16, base/parallel, golang.org/x/sys and unsafe. It owns no memory: package host does.
//
// A parameter consists of its weight and the planes beside it. An Optimizer declares its planes, cuts a layer into
// units, and updates one unit at a time. The callers that hold the memory know no plane by name.
//
// Invariant: every result has the same bits for any number of threads and any instruction set. Element arithmetic is
// IEEE single precision without fused operations, in the order of adamw_generic.go. The only reduction, SumSquares, has
// a partition that depends on the length alone. (The payload of a NaN may differ.)
//
// A split weight streams as bf16 and is stored in two planes. The plane hi is the fp32 weight rounded half up to bf16;
// it goes to the device. The plane lo is the signed 16-bit rest: bits = hi<<16 + lo modulo 2³². Source:
// arXiv:2005.04680, with a signed rest so that hi is rounded instead of truncated.
package optim

//go:generate go run -C ../../tools/_asm ./optim -out ../../host/optim/kernels_amd64.s -stubs ../../host/optim/kernels_amd64.go -pkg optim
//go:generate go run -C ../../tools/_asm ./arm64 -pkg optim -out ../../host/optim/kernels_arm64.s -stubs ../../host/optim/kernels_arm64.go
