package gemm

import (
	"sync/atomic"
	"unsafe"

	"mt/base/parallel"
)

// Workspace is the scratch memory for one call of Run at a time. It grows to the largest shape used, so repeated
// calls allocate nothing. The zero value is ready for use. A Workspace must not be copied.
type Workspace struct {
	lanes []lane
	b     []float32 // packed panels of B
	x     []float32 // rows of A as fp32, for dot products

	// The product that Run computes at the moment, and how it is cut up.
	Args
	level   *level
	layout  *layout // one of the level's layouts
	left    operand
	right   operand
	result  operand
	plan    plan
	chunk   chunk
	threads int

	// The pool runs packBody, tileBody and dotBody on every thread. Each is made once, to save
	// allocations. Field next is the index of the next piece of work, see claim.
	next     atomic.Int64
	packBody func(int)
	tileBody func(int)
	dotBody  func(int)
}

// lane is the scratch memory of one thread of the pool.
type lane struct {
	a    []float32 // a packed block of A
	tile []float32 // a block of D in fp32, if D is bf16
	rows rowOffsets
	four [4]int // offsets of the rows of a dot product
	sums [4]float32
	_    [64]byte // keeps lanes off each other's cache lines
}

// begin prepares w for computing the product a on the threads of p.
func (w *Workspace) begin(p *parallel.Pool, a Args) {
	if w.packBody == nil {
		w.packBody, w.tileBody, w.dotBody = w.packLane, w.tileLane, w.dotLane
	}
	if w.level == nil {
		w.level = best
	}
	w.Args = a
	w.layout = &w.level.layout
	if a.ABF16 && a.BBF16 && w.level.pairs != nil {
		w.layout = w.level.pairs
	}
	w.left, w.right, w.result = w.operands()
	w.threads = p.Threads()
	if n := w.threads; len(w.lanes) < n {
		w.lanes = append(w.lanes, make([]lane, n-len(w.lanes))...)
	}
}

// end drops the pointers to the operands, so that w does not keep them alive after the call.
func (w *Workspace) end() {
	w.Args = Args{}
	w.left, w.right, w.result = operand{}, operand{}, operand{}
}

// Bytes returns the bytes of memory that w holds. Packed panels of B take at most about 32 MiB, or 256 bytes for each
// element of K if that is more. Each thread takes at most about 0.5 MiB (1 MiB if D is bf16).
func (w *Workspace) Bytes() int64 {
	n := cap(w.b) + cap(w.x)
	for i := range w.lanes {
		n += cap(w.lanes[i].a) + cap(w.lanes[i].tile)
	}
	return 4 * int64(n)
}

// claim returns the index of the next piece of work of the current phase, packing or multiplying. Each index is
// returned to one thread only.
func (w *Workspace) claim() int { return int(w.next.Add(1) - 1) }

// grown returns buf, or a new buffer if buf is too small. The result has at least n floats and begins on a cache
// line.
func grown(buf []float32, n int) []float32 {
	if len(buf) >= n {
		return buf
	}
	const line = 16
	buf = make([]float32, n+line)
	skip := -int(uintptr(unsafe.Pointer(&buf[0]))/4) & (line - 1)
	return buf[skip : skip+n]
}
