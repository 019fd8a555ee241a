//go:build !noasm

package vec

import "golang.org/x/sys/cpu"

var avx2 = kernels{
	level:        AVX2,
	eights:       true,
	widen:        widenAVX2,
	narrow:       narrowAVX2,
	add:          addAVX2,
	scale:        scaleAVX2,
	shift:        shiftAVX2,
	scaleMul:     scaleMulAVX2,
	dot:          dotAVX2,
	sum:          sumAVX2,
	dot3:         dot3AVX2,
	normGrad:     normGradAVX2,
	normGradAdd:  normGradAddAVX2,
	rotate:       rotateAVX2,
	max:          maxAVX2,
	expSum:       expSumAVX2,
	sumExp:       sumExpAVX2,
	softmaxStrip: softmaxStripAVX2,
	gradStrip:    gradStripAVX2,
	swiglu:       unit{swigluAVX2, swigluGradAVX2, swigluGradYAVX2},
	geglu:        unit{gegluAVX2, gegluGradAVX2, gegluGradYAVX2},
	erfglu:       unit{erfgluAVX2, erfgluGradAVX2, erfgluGradYAVX2},
	tileRows:     []tileFunc{tileRows1AVX2, tileRows2AVX2, tileRows3AVX2, tileRows4AVX2, tileRows5AVX2, tileRows6AVX2},
	tileCols:     []tileFunc{tileCols1AVX2, tileCols2AVX2, tileCols3AVX2, tileCols4AVX2, tileCols5AVX2, tileCols6AVX2},
	transpose:    transposeAVX2,
}

var avx512 = kernels{
	level:        AVX512,
	widen:        widenAVX512,
	narrow:       narrowAVX512,
	add:          addAVX512,
	scale:        scaleAVX512,
	shift:        shiftAVX512,
	scaleMul:     scaleMulAVX512,
	dot:          dotAVX512,
	sum:          sumAVX512,
	dot3:         dot3AVX512,
	normGrad:     normGradAVX512,
	normGradAdd:  normGradAddAVX512,
	rotate:       rotateAVX512,
	max:          maxAVX512,
	expSum:       expSumAVX512,
	sumExp:       sumExpAVX512,
	softmaxStrip: softmaxStripAVX512,
	gradStrip:    gradStripAVX512,
	swiglu:       unit{swigluAVX512, swigluGradAVX512, swigluGradYAVX512},
	geglu:        unit{gegluAVX512, gegluGradAVX512, gegluGradYAVX512},
	erfglu:       unit{erfgluAVX512, erfgluGradAVX512, erfgluGradYAVX512},
	tileRows:     []tileFunc{tileRows1AVX512, tileRows2AVX512, tileRows3AVX512, tileRows4AVX512, tileRows5AVX512, tileRows6AVX512, tileRows7AVX512, tileRows8AVX512, tileRows9AVX512, tileRows10AVX512, tileRows11AVX512, tileRows12AVX512, tileRows13AVX512, tileRows14AVX512},
	tileCols:     []tileFunc{tileCols1AVX512, tileCols2AVX512, tileCols3AVX512, tileCols4AVX512, tileCols5AVX512, tileCols6AVX512, tileCols7AVX512, tileCols8AVX512, tileCols9AVX512, tileCols10AVX512, tileCols11AVX512, tileCols12AVX512, tileCols13AVX512, tileCols14AVX512},
	transpose:    transposeAVX512,
}

// available lists the sets of kernels (plain Go, AVX2, AVX-512) that this machine can run, the fastest first.
func available() []*kernels {
	var found []*kernels
	if x := &cpu.X86; x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasFMA && x.HasBMI2 {
		found = append(found, &avx512)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		found = append(found, &avx2)
	}
	return append(found, &generic)
}
