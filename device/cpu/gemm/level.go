package gemm

import (
	"os"
	"slices"
)

// maxKC is the most of K that is packed at once. Panels and tiles of that length
// come from the second-level cache, fast enough for the kernels; a longer one
// means that D is read and written less often.
const maxKC = 512

// kGrain is the multiple that blocks of K and panels are sized in; the AVX-512
// transposition writes whole blocks of it.
const kGrain = 16

// rowStride is the distance, in floats, of the rows of packed A: more than
// maxKC, and such that the rows of a tile begin in different cache sets.
const rowStride = 528

// kernelFunc writes a tile of d: the product of a tile of A and a packed panel
// of B, with k ≥ 1 of K, plus c unless that is nil. lda, ldc and ldd are the
// distances of rows, in floats; ldc may be 0. Of each row only the columns whose
// bit in mask is set are read from c and written to d. The rest are addresses
// to prefetch, which may be anything: for every 16 of k, 128 bytes more from
// panel on, and the cache lines at block and block + across, which then moves
// down bytes.
type kernelFunc func(k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, mask uint32,
	panel, block, across, down uintptr)

// level is one instruction set's implementation.
type level struct {
	name    string
	mr, nr  int          // the greatest height and the width of a kernel
	kernels []kernelFunc // by height; [0] is unused

	// packRows writes rows of k elements of a, one after the other, as fp32,
	// rowStride apart.
	packRows func(dst *float32, a operand, rows, k int)
	// packRowsT does the same for a stored transposed. It may write up to the
	// next multiples of kGrain of rows and of k.
	packRowsT func(dst *float32, a operand, rows, k int, s *rowOffsets)
	// packB writes panels of nr columns of the n columns of b, stride apart, k
	// rows each, nr apart. Missing columns of the last panel are arbitrary.
	packB func(dst *float32, stride int, b operand, n, k int)
	// packBT does the same for b stored transposed. It may write up to the next
	// multiple of kGrain rows.
	packBT func(dst *float32, stride int, b operand, n, k int, s *rowOffsets)

	widen  func(dst *float32, src *uint16, n int)
	narrow func(dst *uint16, src *float32, n int)
	// dot writes the products of x (k) with four rows of b, which begin offsets
	// bytes after its origin.
	dot func(d *[4]float32, x *float32, b operand, offsets *[4]int, k int)
}

// rowOffsets is scratch: where rows begin, in bytes.
type rowOffsets [16]int

// best is the level that Run uses.
var best = choose(os.Getenv("MT_CPU"))

// Level names the instruction set in use: "avx512", "avx2" or "generic". The
// environment variable MT_CPU, read at start, limits the choice to that name
// and slower ones; any other value leaves it free.
func Level() string { return best.name }

// choose returns the fastest level of this machine that limit allows.
func choose(limit string) *level {
	names := []string{"avx512", "avx2", "generic"}
	from := max(slices.Index(names, limit), 0)
	for _, l := range levels() {
		if slices.Index(names, l.name) >= from {
			return l
		}
	}
	return generic
}
