package gemm

import "os"

// maxKC is the largest block of K that is packed at once. Panels and tiles of this length fit the second-level cache,
// which the kernels can read without waiting. Longer blocks read and write D less often.
const maxKC = 512

// kGrain is the multiple to which the lengths of K's blocks and panels are rounded up. The AVX-512 transposition always
// writes kGrain elements at a time.
const kGrain = 16

// rowStride is the distance in floats between the rows of packed A. It exceeds maxKC, so that the rows of a tile lie in
// different cache sets and do not evict each other.
const rowStride = 528

// kernelFunc computes a tile of d: the product of a tile of A and a packed panel of B over k ≥ 1 steps of K. It adds
// c, unless c is nil. A step takes four bytes of a row of a: a float, or a pair of bf16 (see layout).
//
// The row strides lda, ldc and ldd are in floats; ldc may be 0. Only columns whose bit in mask is set are read from c
// and written to d.
//
// The last four arguments are addresses to prefetch, which may be invalid. For every 16 of k the kernel prefetches
// the next 128 bytes from panel on, and the cache lines at block and at block + across. Then block advances by down
// bytes. The kernels of AVX2 prefetch half as much for every 8 of k, and nothing at block + across.
type kernelFunc func(k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, mask uint32,
	panel, block, across, down uintptr)

// layout describes how operands are packed, and has the kernels that multiply them. A packed element has four bytes:
// an fp32 or, if perStep is 2, a pair of consecutive bf16 of K with the first in the upper half. A pair that the end
// of K leaves incomplete is filled with 0. k always counts elements of K.
type layout struct {
	perStep int          // elements of K in a packed element
	kernels []kernelFunc // by height; [0] is unused
	// column does for tiles of the greatest height, one below the other, what kernels do with a full mask. From tile to
	// tile panel advances by 8 bytes for each of k, block by step, and a by lda floats. nil: there is none.
	column func(tiles, k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int,
		panel, block, across, down, step uintptr)

	// packRows writes rows rows of k elements of a, rowStride packed elements apart. It may write up to the next
	// multiple of kGrain packed elements.
	packRows func(dst *float32, a operand, rows, k int)
	// packRowsT does what packRows does, but a is stored transposed. It may write up to the next
	// multiples of kGrain rows and packed elements.
	packRowsT func(dst *float32, a operand, rows, k int, s *rowOffsets)
	// packTiles writes tiles of h rows of a, stride floats apart. A tile has level.mr floats for each of k, one after the
	// other, and kernels read a tile, not rows. trans: a is stored transposed. nil: packRows and packRowsT serve.
	packTiles func(dst *float32, stride int, a operand, trans bool, h, rows, k int, s *rowOffsets)
	// packB writes the n columns of b as panels of nr columns. Panels are stride apart and their rows nr apart.
	// Missing columns of the last panel are arbitrary.
	packB func(dst *float32, stride int, b operand, n, k int)
	// packBT does what packB does, but b is stored transposed. It may write up to the next multiple
	// of kGrain rows.
	packBT func(dst *float32, stride int, b operand, n, k int, s *rowOffsets)
}

// steps returns the number of packed elements that hold k elements of K: k, or with pairs of bf16
// half as many, rounded up.
func (l *layout) steps(k int) int { return ceil(k, l.perStep) }

// level has the functions for one instruction set, such as AVX2: kernels that multiply, and
// functions that pack operands for them.
type level struct {
	name   string
	mr, nr int // largest height and the width of a kernel
	// rows is the largest number of rows of A packed at a time, a multiple of mr. Panels of B and blocks of D pass
	// through the same second-level cache, so rows of maxKC elements take a part of it: 470 KB of 1 MiB or more with
	// AVX-512, 100 KB of 256 KiB or more with AVX2. The kernels of eight tiles prefetch a whole panel, so rows is at
	// least 8·mr.
	rows   int
	layout         // for fp32; bf16 is widened to fp32
	pairs  *layout // for products of bf16 by bf16; nil: they are widened too

	widen  func(dst *float32, src *uint16, n int)
	narrow func(dst *uint16, src *float32, n int)
	// dot writes to d the dot products of x, which has k elements, with four rows of b. offsets are the distances of
	// the rows from b's origin in bytes.
	dot func(d *[4]float32, x *float32, b operand, offsets *[4]int, k int)

	// peak does peakElements fused multiply-adds in registers, n times; nil: there is no such function.
	peak         func(n int)
	peakElements int
}

// rowOffsets is memory in which packing functions collect the byte offsets of rows, for the assembly.
type rowOffsets [32]int

// best is the level (kernels for one instruction set) that Run uses.
var best = choose(os.Getenv("MT_CPU"))

// Level returns the instruction set in use: "avx512bf16", "avx512", "avx2", "neon" or "generic". The environment
// variable MT_CPU, read at start, limits the choice to the named level and slower ones. Any other value sets no
// limit.
func Level() string { return best.name }

// choose returns the fastest level (kernels for one instruction set) of this machine. limit names the fastest level
// allowed; "": no limit.
func choose(limit string) *level {
	rank := map[string]int{"generic": 0, "avx2": 1, "neon": 1, "avx512": 2, "avx512bf16": 3}
	most, limited := rank[limit]
	for _, l := range levels() {
		if !limited || rank[l.name] <= most {
			return l
		}
	}
	return generic
}
