//go:build !noasm

package optim

// available lists the kernels that this machine can run, fastest first. Every arm64 processor that Go supports has
// NEON.
func available() []*kernels { return []*kernels{&neon, &generic} }

var neon = kernels{
	name:  "neon",
	lanes: 8,
	plain: [rules][gradKinds]plainKernel{
		{adamPlainF32NEON, adamPlainBF16NEON, adamPlainZeroNEON},
		{lionPlainF32NEON, lionPlainBF16NEON, lionPlainZeroNEON},
		{sgdPlainF32NEON, sgdPlainBF16NEON, sgdPlainZeroNEON},
		{momentumPlainF32NEON, momentumPlainBF16NEON, momentumPlainZeroNEON},
		{applyPlainF32NEON, applyPlainBF16NEON},
		{gradZero: averagePlainZeroNEON},
	},
	split: [rules][gradKinds]splitKernel{
		{adamSplitF32NEON, adamSplitBF16NEON, adamSplitZeroNEON},
		{lionSplitF32NEON, lionSplitBF16NEON, lionSplitZeroNEON},
		{sgdSplitF32NEON, sgdSplitBF16NEON, sgdSplitZeroNEON},
		{momentumSplitF32NEON, momentumSplitBF16NEON, momentumSplitZeroNEON},
		{applySplitF32NEON, applySplitBF16NEON},
		{gradZero: averageSplitZeroNEON},
	},
	prepare: [gradZero][gradZero]prepareKernel{{prepareF32ToF32NEON, prepareF32ToBF16NEON}, {prepareBF16ToF32NEON, prepareBF16ToBF16NEON}},
	sum:     [gradKinds]sumKernel{sumF32NEON, sumBF16NEON},
	codes:   codeKernels{ofValues(decodeNEON), ofValues(decode16NEON), ofTable(encodeNEON), ofTable(encode16NEON), greatestNEON},
	rounds:  roundKernels{widenNEON, roundNEON},
}
