package gemm

// plan is how a product is cut up. Of all that it says, only kc and kBlocks
// influence the order of sums, and they follow from K alone.
type plan struct {
	kc, kBlocks int // K is cut into kBlocks blocks of kc, the last of which may be shorter

	inPlace bool // kernels read A where it lies; it is not packed

	nc     int // columns of B that are packed at a time, whole panels
	panels int // the panels of the columns packed now

	// The tasks for the columns packed now: mBlocks · nBlocks.
	mBlocks, rows   int // blocks of rows of D, the last may be shorter
	nBlocks, across int // blocks of panels, the last may be shorter
}

const (
	// maxRows is the most rows of A that are packed at a time: with maxKC they
	// take 470 KB, a good part of a second-level cache.
	maxRows = 224
	// maxPackedB is about how many floats of B are packed at a time.
	maxPackedB = 8 << 20
	// minPackedN is the fewest columns of B that are packed at a time.
	minPackedN = 64
	// maxTileN is the width of a block of a bf16 D, which is summed in scratch.
	maxTileN = 512
	// What a task costs beside its products: for each row (packing A) as much as
	// that many columns, and for each column (fetching B) as much as that many
	// rows.
	rowCost, columnCost = 30, 6
	// tailCost is the share of a task that is lost at the end, when some threads
	// have nothing left to do and another one, which was held up, still works.
	tailCost = 0.25
)

// planK decides how K is cut into blocks.
func (p *plan) planK(k int) {
	p.kc = roundUp(ceil(k, ceil(k, maxKC)), kGrain)
	p.kBlocks = ceil(k, p.kc)
}

// spreads says whether blocks of kc floats, of rows of k floats, fall into
// different sets of a first-level cache, so that kernels may read the rows where
// they lie. They do where the rows follow each other without a gap, or are not a
// multiple of 4 KiB apart.
func spreads(k, kc int) bool { return k == kc || k%1024 != 0 }

// planN decides how many columns of B are packed at a time, which are steps packed elements long.
func (p *plan) planN(n, steps, nr int) {
	most := max(maxPackedB/roundUp(steps, kGrain), minPackedN)
	p.nc = roundUp(ceil(n, ceil(n, most)), nr)
}

// planTasks cuts m rows by n columns, which are those packed now, into tasks: few
// enough to pack little, and enough to keep all threads busy to the end.
func (p *plan) planTasks(m, n int, l *level, threads int, narrow bool) {
	p.panels = ceil(n, l.nr)
	firstM, firstN := ceil(m, maxRows), 1
	if narrow {
		firstN = ceil(n, maxTileN)
	}
	cheapest := -1.0
	for nb := firstN; nb <= min(p.panels, max(firstN, 2*threads)); nb *= 2 {
		for mb := firstM; mb <= min(ceil(m, l.mr), firstM+2*threads); mb++ {
			rows, across := ceil(m, mb), ceil(p.panels, nb)
			tasks := ceil(m, rows) * ceil(p.panels, across)
			columns := across * l.nr
			one := float64(rows*columns + rowCost*rows + columnCost*columns)
			if cost := one * (float64(ceil(tasks, threads)) + tailCost); cheapest < 0 || cost < cheapest {
				cheapest = cost
				p.mBlocks, p.rows = ceil(m, rows), rows
				p.nBlocks, p.across = ceil(p.panels, across), across
			}
		}
	}
}

// kRange is the kb-th block of K: where it begins and how long it is.
func (p *plan) kRange(kb, k int) (from, n int) {
	from = kb * p.kc
	return from, min(p.kc, k-from)
}

// ceil is a / b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

// roundUp is the least multiple of b that is at least a.
func roundUp(a, b int) int { return ceil(a, b) * b }
