//go:build !noasm

package optim

import "golang.org/x/sys/cpu"

// available lists the kernels that this machine can run, fastest first.
func available() []*kernels {
	var found []*kernels
	if x := &cpu.X86; x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		if x.HasAVX512VBMI {
			found = append(found, &avx512vbmi)
		}
		found = append(found, &avx512)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		found = append(found, &avx2)
	}
	return append(found, &generic)
}

// avx512vbmi has the kernels of avx512, but with faster ones for 8-bit codes. These keep the codebook in registers.
var avx512vbmi = func() kernels {
	k := avx512
	k.name = "avx512vbmi"
	k.codes.decode = func(b *codebook, codes *byte, out *float32, n int, scale *float32) {
		decodeVBMI(&b.registers.values, codes, out, n, scale)
	}
	k.codes.encode = func(b *codebook, x *float32, codes *byte, n int, scale *float32) {
		encodeVBMI(&b.borders, &b.lines, b.zero, x, codes, n, scale)
	}
	return k
}()

var avx512 = kernels{
	name:  "avx512",
	lanes: 16,
	plain: [rules][gradKinds]plainKernel{
		{adamPlainF32AVX512, adamPlainBF16AVX512, adamPlainZeroAVX512},
		{lionPlainF32AVX512, lionPlainBF16AVX512, lionPlainZeroAVX512},
		{sgdPlainF32AVX512, sgdPlainBF16AVX512, sgdPlainZeroAVX512},
		{momentumPlainF32AVX512, momentumPlainBF16AVX512, momentumPlainZeroAVX512},
		{applyPlainF32AVX512, applyPlainBF16AVX512},
		{gradZero: averagePlainZeroAVX512},
	},
	split: [rules][gradKinds]splitKernel{
		{adamSplitF32AVX512, adamSplitBF16AVX512, adamSplitZeroAVX512},
		{lionSplitF32AVX512, lionSplitBF16AVX512, lionSplitZeroAVX512},
		{sgdSplitF32AVX512, sgdSplitBF16AVX512, sgdSplitZeroAVX512},
		{momentumSplitF32AVX512, momentumSplitBF16AVX512, momentumSplitZeroAVX512},
		{applySplitF32AVX512, applySplitBF16AVX512},
		{gradZero: averageSplitZeroAVX512},
	},
	prepare: [gradZero][gradZero]prepareKernel{{prepareF32ToF32AVX512, prepareF32ToBF16AVX512}, {prepareBF16ToF32AVX512, prepareBF16ToBF16AVX512}},
	sum:     [gradKinds]sumKernel{sumF32AVX512, sumBF16AVX512},
	codes:   codeKernels{ofValues(decodeAVX512), ofValues(decode16AVX512), ofTable(encodeAVX512), encodeSixteen, greatestAVX512},
	rounds:  roundKernels{widenAVX512, roundAVX512},
}

var avx2 = kernels{
	name:  "avx2",
	lanes: 8,
	plain: [rules][gradKinds]plainKernel{
		{adamPlainF32AVX2, adamPlainBF16AVX2, adamPlainZeroAVX2},
		{lionPlainF32AVX2, lionPlainBF16AVX2, lionPlainZeroAVX2},
		{sgdPlainF32AVX2, sgdPlainBF16AVX2, sgdPlainZeroAVX2},
		{momentumPlainF32AVX2, momentumPlainBF16AVX2, momentumPlainZeroAVX2},
		{applyPlainF32AVX2, applyPlainBF16AVX2},
		{gradZero: averagePlainZeroAVX2},
	},
	split: [rules][gradKinds]splitKernel{
		{adamSplitF32AVX2, adamSplitBF16AVX2, adamSplitZeroAVX2},
		{lionSplitF32AVX2, lionSplitBF16AVX2, lionSplitZeroAVX2},
		{sgdSplitF32AVX2, sgdSplitBF16AVX2, sgdSplitZeroAVX2},
		{momentumSplitF32AVX2, momentumSplitBF16AVX2, momentumSplitZeroAVX2},
		{applySplitF32AVX2, applySplitBF16AVX2},
		{gradZero: averageSplitZeroAVX2},
	},
	prepare: [gradZero][gradZero]prepareKernel{{prepareF32ToF32AVX2, prepareF32ToBF16AVX2}, {prepareBF16ToF32AVX2, prepareBF16ToBF16AVX2}},
	sum:     [gradKinds]sumKernel{sumF32AVX2, sumBF16AVX2},
	codes:   codeKernels{ofValues(decodeAVX2), ofValues(decode16AVX2), ofTable(encodeAVX2), ofTable(encode16AVX2), greatestAVX2},
	rounds:  roundKernels{widenAVX2, roundAVX2},
}

// encodeSixteen is the kernel that encodes numbers in 4-bit codes, with the codebook's table in registers (see the type
// sixteen).
func encodeSixteen(b *codebook, x *float32, codes *byte, n int, scale *float32) {
	s := &b.sixteen
	encode16AVX512(&s.words, s.least, s.offset, s.lowerBits, x, codes, n, scale)
}
