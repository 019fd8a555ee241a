// Package optim says what is kept beside the weights and how it moves: planes, the
// optimizers that keep them, and the arithmetic of gradients.
//
// It may import model, base/bf16, base/parallel, golang.org/x/sys and unsafe. It owns
// no memory: package host does.
//
// A parameter is its weight and the planes that are kept beside it. An Optimizer
// says which planes it wants and into which units a layer is cut, and moves one
// unit at a time. Whoever calls it and holds the memory knows no plane by name.
//
// Invariant: every result has the same bits for any number of threads and any
// instruction set. Element arithmetic is IEEE single precision without fused
// operations, in the order that adamw_generic.go writes down; the only
// reduction, SumSquares, has a partition fixed by the length alone. (Which
// payload a NaN carries is left open.)
//
// A weight that streams as bf16 is kept in two planes. hi is the fp32 weight rounded
// half up to bf16; it is what goes to the device. lo is the signed 16-bit rest:
// bits = hi<<16 + lo modulo 2³². Source: arXiv:2005.04680, with a signed rest so that
// hi is rounded, not cut.
package optim

//go:generate go run -C ../../tools/_asm ./optim -out ../../host/optim/kernels_amd64.s -stubs ../../host/optim/kernels_amd64.go -pkg optim
//go:generate go run -C ../../tools/_asm ./arm64 -pkg optim -out ../../host/optim/kernels_arm64.s -stubs ../../host/optim/kernels_arm64.go
