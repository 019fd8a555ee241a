package gemm

import "os"

// maxKC is the most of K that is packed at once. Panels and tiles of that length
// come from the second-level cache, which is fast enough for the kernels; the
// longer they are, the less often D is read and written.
const maxKC = 512

// kGrain is the multiple that the sizes of blocks of K and of panels are rounded
// to. The AVX-512 transposition writes whole blocks of it.
const kGrain = 16

// rowStride is the distance in floats between the rows of packed A. It is more than
// maxKC, and such that the rows of a tile begin in different cache sets.
const rowStride = 528

// kernelFunc writes a tile of d: the product of a tile of A and a packed panel of B
// over k ≥ 1 steps of K, plus c unless that is nil. A step takes four bytes of a row of a:
// a float, or a pair of bf16 (see layout). lda, ldc and ldd are the distances
// between rows, in floats; ldc may be 0. Only the columns whose bit in mask is set
// are read from c and written to d. The rest are addresses to prefetch, which may
// be anything. For every 16 of k the kernel prefetches 128 more bytes from panel
// on, and the cache lines at block and at block + across; after that block moves on
// by down bytes.
type kernelFunc func(k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, mask uint32,
	panel, block, across, down uintptr)

// layout is how operands are packed, and what multiplies them then. A packed element has four bytes. It is an fp32, or
// where perStep is 2 a pair: two bf16 that follow each other in K, the first in the upper half. What a pair lacks
// because K ends is 0. k is always a number of elements of K.
type layout struct {
	perStep int          // the elements of K in a packed element
	kernels []kernelFunc // by height; [0] is unused

	// packRows writes rows rows of k elements of a, rowStride packed elements apart. It may write on, up to the next
	// multiple of kGrain packed elements.
	packRows func(dst *float32, a operand, rows, k int)
	// packRowsT does the same for an a that is stored transposed. It may write on,
	// up to the next multiples of kGrain of rows and of packed elements.
	packRowsT func(dst *float32, a operand, rows, k int, s *rowOffsets)
	// packB writes the n columns of b as panels of nr columns. Panels are stride
	// apart and their rows nr apart. In the last panel the columns that
	// are missing are arbitrary.
	packB func(dst *float32, stride int, b operand, n, k int)
	// packBT does the same for a b that is stored transposed. It may write on, up
	// to the next multiple of kGrain of rows.
	packBT func(dst *float32, stride int, b operand, n, k int, s *rowOffsets)
}

// steps is how many packed elements k of K take.
func (l *layout) steps(k int) int { return ceil(k, l.perStep) }

// level is the implementation for one instruction set.
type level struct {
	name   string
	mr, nr int     // the greatest height and the width of a kernel
	layout         // of fp32, to which bf16 is widened
	pairs  *layout // of products of bf16 by bf16; nil: as all others

	widen  func(dst *float32, src *uint16, n int)
	narrow func(dst *uint16, src *float32, n int)
	// dot writes the products of x (k) with four rows of b. Each row begins at its
	// offset, in bytes, from the origin of b.
	dot func(d *[4]float32, x *float32, b operand, offsets *[4]int, k int)
}

// rowOffsets is scratch memory for where rows begin, in bytes.
type rowOffsets [32]int

// best is the level that Run uses.
var best = choose(os.Getenv("MT_CPU"))

// Level names the instruction set in use: "avx512bf16", "avx512", "avx2", "neon" or "generic". The
// environment variable MT_CPU, read at start, limits the choice to that name
// and slower ones; any other value leaves it free.
func Level() string { return best.name }

// choose returns the fastest level of this machine that limit allows.
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
