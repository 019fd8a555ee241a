// Package vec holds the inner loops of device/cpu: row kernels, bf16 conversion and small matrix tiles over fp32.
// They exist in plain Go and in AVX-512, AVX2 and NEON assembly from the generators in tools/_asm.
//
// It imports golang.org/x/sys/cpu only. Invariant: the result of a call depends on its arguments and on Level alone.
// The order of a sum depends on its length alone.
package vec

//go:generate go run -C ../../../tools/_asm ./vec -out ../../device/cpu/vec/vec_amd64.s -stubs ../../device/cpu/vec/stubs_amd64.go -pkg vec
//go:generate go run -C ../../../tools/_asm ./arm64 -pkg vec -out ../../device/cpu/vec/vec_arm64.s -stubs ../../device/cpu/vec/stubs_arm64.go
