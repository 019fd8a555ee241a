package gemm

import "unsafe"

// panelAfter returns the address of the packed panel of B that kernels read after the j-th panel of block kb of K. The
// kernel prefetches it.
func (w *Workspace) panelAfter(b *block, kb, j int) uintptr {
	switch {
	case j+1 < b.last:
		return uintptr(unsafe.Pointer(w.panel(kb, j+1)))
	case kb+1 < w.plan.kBlocks:
		return uintptr(unsafe.Pointer(w.panel(kb+1, b.first)))
	}
	return uintptr(unsafe.Pointer(w.panel(0, b.first)))
}

const cacheLine = 64

// source is the part of A that kernels will read next. Each kernel call prefetches one or two rows
// of it into the cache.
type source struct {
	from uintptr // the first row that the next call prefetches
	ld   uintptr // bytes between rows
	rows int     // rows left; with a transposed A, calls left for this column

	// across and down are arguments of a kernel call. First, across is the distance in bytes from
	// the first prefetched row to the second; 0: there is only one row. Second, down is the
	// distance in bytes to the next address, added after every 16 elements of K.
	across, down uintptr

	// A transposed A is read one column of cache lines after another, from its first row to its last.
	first  uintptr // the address of the first row
	calls  int     // calls for a column
	passes int     // columns left
}

// sourceAfter returns the part of A that will be read after block kb of K of task b. The prefetching is spread over the
// next calls kernel calls. The part is the next block of K. After the last block, the first block of the next
// unclaimed task follows, which this thread will probably claim. Only the kernels for packed tiles prefetch a transposed
// A. Its rows are short and far apart, so each call takes one cache line of many rows.
func (w *Workspace) sourceAfter(b *block, kb, calls int) source {
	if w.TransA && w.layout.packTiles == nil {
		return source{}
	}
	m0, m := b.m0, b.m
	_, now := w.plan.kRange(kb, w.K)
	kb++
	if kb == w.plan.kBlocks {
		kb = 0
		t := int(w.next.Load())
		if t >= w.plan.mBlocks*w.plan.nBlocks {
			return source{}
		}
		next := w.blockOf(t)
		m0, m = next.m0, next.m
	}
	k0, k := w.plan.kRange(kb, w.K)
	size := w.left.size()
	if w.TransA {
		row, each := uintptr(w.left.ld*size), max(now/8, 1)
		from := uintptr(w.left.at(k0, m0).p)
		return source{from: from, ld: uintptr(each) * row, rows: ceil(k, each), down: 2 * row,
			first: from, calls: ceil(k, each), passes: ceil(m*size, cacheLine) - 1}
	}
	s := source{
		from: uintptr(w.left.at(m0, k0).p),
		ld:   uintptr(w.left.ld * size),
		rows: m,
		down: uintptr(ceil(k*size, max(w.layout.steps(now)/kGrain, 1))),
	}
	if m > calls {
		s.across = s.ld
	}
	return s
}

// take returns the address at which the next kernel call begins to prefetch, and for how many of the next n calls step
// by step the rows suffice; 0, n: nothing is left.
func (s *source) take(n int) (uintptr, int) {
	if s.rows <= 0 && s.passes > 0 {
		s.passes--
		s.first += cacheLine
		s.from, s.rows = s.first, s.calls
	}
	if s.rows <= 0 {
		s.from, s.across, s.down = 0, 0, 0
		return 0, n
	}
	each := 1
	if s.across != 0 {
		each = 2
	}
	n = min(n, ceil(s.rows, each))
	at := s.from
	s.from += uintptr(n) * (s.ld + s.across)
	s.rows -= n * each
	return at, n
}
