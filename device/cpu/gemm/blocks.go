package gemm

import (
	"unsafe"

	"mt/base/parallel"
)

// packGroup is the number of panels of B that a thread packs at a time.
const packGroup = 8

// chunk is the range of columns of B that is packed at the moment. A large B is packed and multiplied chunk by chunk.
type chunk struct{ from, n int }

// runBlocks computes the product with packed operands: it packs a range of columns of B, multiplies
// with it, and goes on with the next range.
func (w *Workspace) runBlocks(p *parallel.Pool) {
	l := w.level
	w.plan.planK(w.K)
	w.plan.inPlace = w.layout.packTiles == nil && !w.TransA && !w.ABF16 && spreads(w.K, w.plan.kc)
	w.plan.planN(w.N, w.layout.steps(w.K), l.nr)
	for from := 0; from < w.N; from += w.plan.nc {
		w.chunk = chunk{from, min(w.plan.nc, w.N-from)}
		w.plan.planTasks(w.M, w.chunk.n, l, w.threads, w.DBF16)
		w.b = grown(w.b, w.panelsBefore(w.plan.kBlocks-1)+w.plan.panels*w.panelStride(w.plan.kc))

		w.next.Store(0)
		p.Run(min(w.threads, w.packUnits()), w.packBody)
		w.next.Store(0)
		p.Run(min(w.threads, w.plan.mBlocks*w.plan.nBlocks), w.tileBody)
	}
}

// panelStride returns the distance between two packed panels, in packed elements, if a panel holds k elements of K. It
// is a cache line more than they take, so that panels that are packed together fall into different sets of a cache.
func (w *Workspace) panelStride(k int) int {
	return roundUp(w.layout.steps(k), kGrain)*w.level.nr + cacheLine/4
}

// tileStride returns the distance between two packed tiles of A, in floats, if a tile holds k elements of K.
func (w *Workspace) tileStride(k int) int { return roundUp(k, kGrain)*w.level.mr + cacheLine/4 }

// panelsBefore returns the offset at which the packed panels of block kb of K begin. All earlier blocks have the full
// length kc.
func (w *Workspace) panelsBefore(kb int) int { return kb * w.plan.panels * w.panelStride(w.plan.kc) }

// panel returns the j-th packed panel of block kb of K.
func (w *Workspace) panel(kb, j int) *float32 {
	_, k := w.plan.kRange(kb, w.K)
	return &w.b[w.panelsBefore(kb)+j*w.panelStride(k)]
}

func (w *Workspace) packUnits() int { return w.plan.kBlocks * ceil(w.plan.panels, packGroup) }

// packLane packs B on the thread with number lane, which claims one group of panels after another.
func (w *Workspace) packLane(lane int) {
	units := w.packUnits()
	for u := w.claim(); u < units; u = w.claim() {
		w.packUnit(&w.lanes[lane], u)
	}
}

// packUnit packs the u-th piece of work: one group of panels of B, for one block of K.
func (w *Workspace) packUnit(s *lane, u int) {
	l := w.level
	groups := ceil(w.plan.panels, packGroup)
	kb, first := u/groups, u%groups*packGroup
	k0, k := w.plan.kRange(kb, w.K)
	n0 := w.chunk.from + first*l.nr
	n := min(packGroup*l.nr, w.chunk.from+w.chunk.n-n0)
	if w.TransB {
		w.layout.packBT(w.panel(kb, first), w.panelStride(k), w.right.at(n0, k0), n, k, &s.rows)
	} else {
		w.layout.packB(w.panel(kb, first), w.panelStride(k), w.right.at(k0, n0), n, k)
	}
}

// tileLane computes D on the thread with number lane, which claims one block of D after another.
func (w *Workspace) tileLane(lane int) {
	tasks := w.plan.mBlocks * w.plan.nBlocks
	for t := w.claim(); t < tasks; t = w.claim() {
		b := w.blockOf(t)
		w.prepare(&b, &w.lanes[lane])
		for kb := range w.plan.kBlocks {
			w.readA(&b, kb)
			w.multiply(&b, kb)
			b.c, b.ldc = b.d, b.ldd
		}
		w.complete(&b)
	}
}

// block is one task of a thread: a block of rows and columns of D, which it computes for all of K.
type block struct {
	*lane
	m0, m       int // rows
	first, last int // panels; last is excluded
	n0, n       int // columns
	tiles, h    int // row tiles of height h; the last one may be lower

	left *float32 // the block of A that kernels read
	lda  int      // its row stride; with packed tiles, their distance
	down int      // the distance from one tile to the next below, in floats

	c, d     *float32 // what kernels add and where they write, from (m0, n0) on
	ldc, ldd int
}

// blockOf returns the block of D that is the t-th task. Consecutive tasks use the same packed panels of B, which are
// then in the cache.
func (w *Workspace) blockOf(t int) block {
	p, l := &w.plan, w.level
	var b block
	b.m0 = t % p.mBlocks * p.rows
	b.m = min(p.rows, w.M-b.m0)
	b.first = t / p.mBlocks * p.across
	b.last = min(b.first+p.across, p.panels)
	b.n0 = w.chunk.from + b.first*l.nr
	b.n = min(w.chunk.from+b.last*l.nr, w.chunk.from+w.chunk.n) - b.n0
	b.tiles = ceil(b.m, l.mr)
	b.h = ceil(b.m, b.tiles)
	return b
}

// prepare chooses where block b is summed: in D itself or in the thread's memory s. It also sets the value to which the
// product of the first block of K is added.
func (w *Workspace) prepare(b *block, s *lane) {
	b.lane = s
	if !w.plan.inPlace {
		s.a = grown(s.a, max(roundUp(b.m, kGrain)*rowStride, b.tiles*w.tileStride(w.plan.kc)))
	}
	out := w.result.at(b.m0, b.n0)
	b.d, b.ldd = (*float32)(out.p), w.result.ld
	if w.DBF16 {
		b.ldd = (b.last - b.first) * w.level.nr
		s.tile = grown(s.tile, b.m*b.ldd)
		b.d = &s.tile[0]
	}
	switch {
	case w.C != nil && w.DBF16:
		out.p = w.C
		for r := range b.m {
			w.level.widen(at(b.d, r*b.ldd), (*uint16)(out.at(b.m0+r, b.n0).p), b.n)
		}
		b.c, b.ldc = b.d, b.ldd
	case w.C != nil:
		out.p = w.C
		b.c, b.ldc = (*float32)(out.at(b.m0, b.n0).p), w.result.ld
	case w.Bias != nil:
		b.c, b.ldc = at((*float32)(w.Bias), b.n0), 0
	}
}

// readA sets where the kernels read task b's rows of A, for block kb of K: in A itself, or in a packed copy that readA
// makes.
func (w *Workspace) readA(b *block, kb int) {
	k0, k := w.plan.kRange(kb, w.K)
	if w.plan.inPlace {
		b.left, b.lda = (*float32)(w.left.at(b.m0, k0).p), w.left.ld
		b.down = b.h * b.lda
		return
	}
	row, column := b.m0, k0
	if w.TransA {
		row, column = k0, b.m0
	}
	from := w.left.at(row, column)
	b.left, b.lda, b.down = &b.a[0], rowStride, b.h*rowStride
	switch {
	case w.layout.packTiles != nil:
		b.lda = w.tileStride(k)
		b.down = b.lda
		w.layout.packTiles(&b.a[0], b.lda, from, w.TransA, b.h, b.m, k, &b.rows)
	case w.TransA:
		w.layout.packRowsT(&b.a[0], from, b.m, k, &b.rows)
	default:
		w.layout.packRows(&b.a[0], from, b.m, k)
	}
}

// multiply runs the kernels of task b for one block of K. Each kernel call also prefetches the next panel of B and the
// next part of A.
func (w *Workspace) multiply(b *block, kb int) {
	l := w.level
	_, k := w.plan.kRange(kb, w.K)
	k = w.layout.steps(k)
	next := w.sourceAfter(b, kb, (b.last-b.first)*b.tiles)
	whole := uintptr(8 * k * b.tiles) // the bytes of the next panel that the calls for one panel prefetch
	for j := b.first; j < b.last; j++ {
		panel := w.panel(kb, j)
		ahead := w.panelAfter(b, kb, j)
		column := (j - b.first) * l.nr
		mask := uint32(1<<min(l.nr, b.n-column) - 1)
		for i := 0; i < b.tiles; {
			h, n := min(b.h, b.m-i*b.h), 1
			if w.layout.column != nil && h == l.mr && b.n-column >= l.nr {
				n = b.m/h - i
			}
			var c *float32
			if b.c != nil {
				c = at(b.c, i*b.h*b.ldc+column)
			}
			block, n := next.take(n)
			across, down, step := next.across, next.down, next.ld+next.across
			if block == 0 { // no part of A to prefetch: prefetch more of B
				block, across, down, step = ahead+whole, cacheLine, 2*cacheLine, uintptr(8*k)
			}
			left, d := at(b.left, i*b.down), at(b.d, i*b.h*b.ldd+column)
			if n > 1 {
				w.layout.column(n, k, left, b.lda, panel, c, b.ldc, d, b.ldd, ahead, block, across, down, step)
			} else {
				w.layout.kernels[h](k, left, b.lda, panel, c, b.ldc, d, b.ldd, mask, ahead, block, across, down)
			}
			ahead += uintptr(8 * k * n)
			i += n
		}
	}
}

// complete finishes a block after the last block of K: it adds the bias unless the sums began with
// it, and rounds to a bf16 D. Sums begin with C, or without C with the bias.
func (w *Workspace) complete(b *block) {
	late := w.C != nil && w.Bias != nil
	if !late && !w.DBF16 {
		return
	}
	bias := w.bias(b.n0, b.n)
	for r := range b.m {
		row := at(b.d, r*b.ldd)
		if late {
			addTo(unsafe.Slice(row, b.n), bias)
		}
		if w.DBF16 {
			w.level.narrow((*uint16)(w.result.at(b.m0+r, b.n0).p), row, b.n)
		}
	}
}

// addTo adds x to d, element by element.
func addTo(d, x []float32) {
	for i, v := range x {
		d[i] += v
	}
}
