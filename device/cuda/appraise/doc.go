// Package appraise runs the kernels of operations in the emulator's interpreter, for a part of their
// blocks, and says what the whole launch does and how long a GPU that is not there takes for it.
//
// It may import the kernels, the operations and the emulator.
//
// Invariant: what it says of a launch follows from the operation, its shape and the kernels alone.
package appraise
