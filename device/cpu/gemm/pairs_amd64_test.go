//go:build !noasm

package gemm

import "golang.org/x/sys/cpu"

// pairsLevel returns the kernels that multiply pairs of bf16; nil: this machine cannot run them.
func pairsLevel() *level {
	if x := &cpu.X86; x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512BW && pairsWork() {
		return avx512bf16
	}
	return nil
}
