//go:build !noasm

package optim

import "golang.org/x/sys/cpu"

// available lists what this machine runs, fastest first.
func available() []*kernels {
	var found []*kernels
	if x := &cpu.X86; x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		found = append(found, &avx512)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		found = append(found, &avx2)
	}
	return append(found, &generic)
}

var avx512 = kernels{
	name:  "avx512",
	lanes: 16,
	plain: [gradKinds]plainKernel{plainF32AVX512, plainBF16AVX512, plainZeroAVX512},
	split: [gradKinds]splitKernel{splitF32AVX512, splitBF16AVX512, splitZeroAVX512},
	sum:   [gradKinds]sumKernel{sumF32AVX512, sumBF16AVX512},
	codes: codeKernels{decodeAVX512, encodeAVX512, greatestAVX512},
}

var avx2 = kernels{
	name:  "avx2",
	lanes: 8,
	plain: [gradKinds]plainKernel{plainF32AVX2, plainBF16AVX2, plainZeroAVX2},
	split: [gradKinds]splitKernel{splitF32AVX2, splitBF16AVX2, splitZeroAVX2},
	sum:   [gradKinds]sumKernel{sumF32AVX2, sumBF16AVX2},
	codes: codeKernels{decodeAVX2, encodeAVX2, greatestAVX2},
}
