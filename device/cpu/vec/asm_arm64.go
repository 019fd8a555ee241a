//go:build !noasm

package vec

var neon = kernels{
	level:        NEON,
	eights:       true,
	widen:        widenNEON,
	narrow:       narrowNEON,
	add:          addNEON,
	scale:        scaleNEON,
	shift:        shiftNEON,
	scaleMul:     scaleMulNEON,
	dot:          dotNEON,
	sum:          sumNEON,
	dot3:         dot3NEON,
	normGrad:     normGradNEON,
	normGradAdd:  normGradAddNEON,
	rotate:       rotateNEON,
	max:          maxNEON,
	expSum:       expSumNEON,
	sumExp:       sumExpNEON,
	softmaxStrip: softmaxRows(maxNEON, exp2SumNEON),
	gradStrip:    gradRows(gradRowNEON),
	swiglu:       unit{swigluNEON, swigluGradNEON, swigluGradYNEON},
	geglu:        unit{gegluNEON, gegluGradNEON, gegluGradYNEON},
	erfglu:       unit{erfgluNEON, erfgluGradNEON, erfgluGradYNEON},
	tileRows:     []tileFunc{tileRows1NEON, tileRows2NEON, tileRows3NEON, tileRows4NEON, tileRows5NEON, tileRows6NEON},
	tileCols:     []tileFunc{tileCols1NEON, tileCols2NEON, tileCols3NEON, tileCols4NEON, tileCols5NEON, tileCols6NEON},
	transpose:    transposeNEON,
}

// available lists the sets of kernels that this machine can run, the fastest first. Every arm64 processor that Go
// supports has NEON.
func available() []*kernels { return []*kernels{&neon, &generic} }
