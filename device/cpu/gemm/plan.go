package gemm

// plan describes how a product is cut into blocks and tasks. Only kc and kBlocks influence the
// order of sums, and both follow from K alone.
type plan struct {
	kc, kBlocks int // K is cut into kBlocks blocks of kc; the last one may be shorter

	inPlace bool // kernels read A in place, not packed

	nc     int // columns of B packed at a time, in whole panels
	panels int // panels of the packed columns

	// The packed columns of B are multiplied in mBlocks · nBlocks tasks. Each task is one block of
	// D.
	mBlocks, rows   int // blocks of rows of D; the last one may be shorter
	nBlocks, across int // blocks of panels; the last one may be shorter
}

const (
	// maxPackedB is the approximate number of floats of B packed at a time.
	maxPackedB = 8 << 20
	// minPackedN is the least number of columns of B packed at a time.
	minPackedN = 64
	// maxTile is about the largest number of elements of a block of a bf16 D. Scratch memory holds its sums in fp32.
	maxTile = 224 * 512
	// rowCost and columnCost are costs of a task besides its products. Packing one row of A costs
	// as much as computing rowCost columns of it. Fetching one column of B costs as much as
	// computing columnCost rows of it.
	rowCost, columnCost = 30, 6
	// tailCost is the cost of the end of a product, in units of a task: some threads idle while a
	// delayed one still works on its last task.
	tailCost = 0.25
)

// planK cuts K into equal blocks of at most maxKC elements.
func (p *plan) planK(k int) {
	p.kc = roundUp(ceil(k, ceil(k, maxKC)), kGrain)
	p.kBlocks = ceil(k, p.kc)
}

// spreads reports whether kernels may read rows of A in place. K is k, and kernels read blocks of
// kc floats of each row. Then the rows of a block fall into different sets of a first-level cache.
// That is so if rows are contiguous blocks, or not a multiple of 4 KiB apart.
func spreads(k, kc int) bool { return k == kc || k%1024 != 0 }

// planN sets the number of columns of B packed at a time. steps is the number of packed elements of a column, and nr
// the width of a panel.
func (p *plan) planN(n, steps, nr int) {
	most := max(maxPackedB/roundUp(steps, kGrain), minPackedN)
	p.nc = roundUp(ceil(n, ceil(n, most)), nr)
}

// planTasks cuts m rows by n packed columns into tasks. Few tasks pack A less often, but many tasks
// keep all threads busy to the end. planTasks takes the division with the lowest estimated cost. If
// narrow, D is bf16, and a block has at most maxTile elements and a panel.
func (p *plan) planTasks(m, n int, l *level, threads int, narrow bool) {
	p.panels = ceil(n, l.nr)
	firstM, firstN := ceil(m, l.rows), 1
	if narrow {
		firstN = ceil(n, maxTile/l.rows)
	}
	cheapest := -1.0
	for nb := firstN; nb <= min(p.panels, max(firstN, 2*threads)); nb *= 2 {
		for mb := firstM; mb <= min(ceil(m, l.mr), firstM+2*threads); mb++ {
			rows, across := roundUp(ceil(m, mb), l.mr), ceil(p.panels, nb)
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

// kRange returns the first element and the length of block number kb of K; k is all of K.
func (p *plan) kRange(kb, k int) (from, n int) {
	from = kb * p.kc
	return from, min(p.kc, k-from)
}

// ceil returns a / b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

// roundUp returns the least multiple of b that is at least a.
func roundUp(a, b int) int { return ceil(a, b) * b }
