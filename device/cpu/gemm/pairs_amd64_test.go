//go:build !noasm

package gemm

import "golang.org/x/sys/cpu"

// pairsLevel is the level that multiplies pairs; nil: this machine cannot.
func pairsLevel() *level {
	if x := &cpu.X86; x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512BW && pairsWork() {
		return avx512bf16
	}
	return nil
}
