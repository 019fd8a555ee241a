package ptx

// Memory finds the buffers behind global addresses; the driver implements it. Find
// may be called from several goroutines at the same time.
type Memory interface {
	// Find returns the allocation that holds the byte at addr, nil where there is
	// none.
	Find(addr uint64) *Buffer
}

// Buffer is one allocation of global memory: Data is at address Base.
type Buffer struct {
	Base uint64
	Data []byte
	Name string
}

// Access says which bytes of a buffer a launch touched. It bounds those it read and
// those it wrote; a range is empty when From >= To.
type Access struct {
	Buffer             *Buffer
	ReadFrom, ReadTo   int64
	WriteFrom, WriteTo int64
}

// Join makes a bound what both touched of one buffer.
func (a *Access) Join(b Access) {
	a.ReadFrom, a.ReadTo = hull(a.ReadFrom, a.ReadTo, b.ReadFrom, b.ReadTo)
	a.WriteFrom, a.WriteTo = hull(a.WriteFrom, a.WriteTo, b.WriteFrom, b.WriteTo)
}

// hull is the range that holds both ranges; one that is empty, as from ≥ to, counts for nothing.
func hull(from, to, from2, to2 int64) (int64, int64) {
	switch {
	case from2 >= to2:
		return from, to
	case from >= to:
		return from2, to2
	}
	return min(from, from2), max(to, to2)
}

// Launch is one launch of a kernel.
type Launch struct {
	Kernel      *Kernel
	Grid, Block [3]uint32
	// Shared is the dynamic shared memory of a block in bytes.
	Shared int
	// Params are the parameters as the driver packs them, Kernel.ParamBytes long.
	Params []byte
	Memory Memory
	// Threads is how many goroutines run blocks; 0 means GOMAXPROCS.
	Threads int
	// Together, where it is more than 1, is how many blocks run at a time on one goroutine, turn by turn in an order that Seed
	// chooses: as on a GPU, and the same in every run.
	Together int
	// Seed chooses the order of blocks and of the warps of a block, and when bulk copies land.
	Seed uint64
	// Period is how many steps of a warp %clock_hi counts as one, so that a kernel's bound on a wait can be met soon; a wait
	// for an mbarrier that nothing ends then fails again and again, in place of the launch. 0: 1<<32, as of the other clocks.
	Period int64
	// CheckGlobal reports blocks that touch the same word of global memory without
	// atomic instructions, at least one of them writing, and warps of one block
	// that touch the same bytes in this way without a barrier between them.
	CheckGlobal bool
	// Only are the numbers x + X·(y + Y·z) of the blocks that run, without repeats; none: all run.
	Only []uint32
	// Count, where it is not nil, asks for counts, and has them after Run.
	Count *Count

	steps int64 // instructions of warps that the last Run executed
	idle  int   // strong loads of global memory since the last atomic instruction; guarded by atomics
}

// period is how many steps of a warp %clock_hi counts as one.
func (l *Launch) period() int64 {
	if l.Period > 0 {
		return l.Period
	}
	return 1 << 32
}
