//go:build !noasm

package ptx

import "golang.org/x/sys/cpu"

// quick reports whether the processor has the instructions that lanes_amd64.s uses.
var quick = cpu.X86.HasAVX2 && cpu.X86.HasFMA

//go:noescape
func addF32AVX2(d, a, b *lanes32)

//go:noescape
func subF32AVX2(d, a, b *lanes32)

//go:noescape
func mulF32AVX2(d, a, b *lanes32)

//go:noescape
func fmaF32AVX2(d, a, b, c *lanes32)

//go:noescape
func add32AVX2(d, a, b *lanes32)

//go:noescape
func sub32AVX2(d, a, b *lanes32)

//go:noescape
func mul32AVX2(d, a, b *lanes32)

//go:noescape
func and32AVX2(d, a, b *lanes32)

//go:noescape
func or32AVX2(d, a, b *lanes32)

//go:noescape
func xor32AVX2(d, a, b *lanes32)

//go:noescape
func shl32AVX2(d, a, b *lanes32)

//go:noescape
func shrU32AVX2(d, a, b *lanes32)

//go:noescape
func shrS32AVX2(d, a, b *lanes32)

//go:noescape
func add64AVX2(d, a, b *lanes64)

//go:noescape
func mulWideSAVX2(d *lanes64, a, b *lanes32)

//go:noescape
func mulWideUAVX2(d *lanes64, a, b *lanes32)

// offsetsAVX2 is offsets32 (lanes.go) in assembly.
//
//go:noescape
func offsetsAVX2(off *lanes64, a *lanes32, imm uint32, bounds *[3][8]uint32)

// offsets64AVX2 is offsets64 (lanes.go) in assembly.
//
//go:noescape
func offsets64AVX2(off, a *lanes64, imm uint64, bounds *[3][4]uint64)

func init() {
	if !quick {
		return
	}
	binary32 = [opCall]func(d, a, b *lanes32){opAdd: add32AVX2, opSub: sub32AVX2, opMul: mul32AVX2, opAnd: and32AVX2, opOr: or32AVX2,
		opXor: xor32AVX2, opShl: shl32AVX2, opShrU: shrU32AVX2, opShrS: shrS32AVX2}
	add64, mulWideS, mulWideU, offsets32, offsets64 = add64AVX2, mulWideSAVX2, mulWideUAVX2, offsetsAVX2, offsets64AVX2
}

// productAVX2 is productGo in assembly: it uses the first depth columns of a and rows of b.
//
//go:noescape
func productAVX2(sums *[64]uint64, a *[128]uint64, b *[16][8]float32, depth int)

func addF32(d, a, b *lanes32) {
	if quick {
		addF32AVX2(d, a, b)
	} else {
		addF32Go(d, a, b)
	}
}

func subF32(d, a, b *lanes32) {
	if quick {
		subF32AVX2(d, a, b)
	} else {
		subF32Go(d, a, b)
	}
}

func mulF32(d, a, b *lanes32) {
	if quick {
		mulF32AVX2(d, a, b)
	} else {
		mulF32Go(d, a, b)
	}
}

func fmaF32(d, a, b, c *lanes32) {
	if quick {
		fmaF32AVX2(d, a, b, c)
	} else {
		fmaF32Go(d, a, b, c)
	}
}

func product(sums *[64]uint64, a *[128]uint64, b *[16][8]float32, depth int) {
	if quick {
		productAVX2(sums, a, b, depth)
	} else {
		productGo(sums, a, b, depth)
	}
}
