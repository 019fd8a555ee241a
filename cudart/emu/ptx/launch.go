package ptx

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Memory maps global addresses to buffers. The emulated driver implements it. Find may be called from several
// goroutines at the same time.
type Memory interface {
	// Find returns the allocation that holds the byte at addr; nil if there is none.
	Find(addr uint64) *Buffer
}

// Buffer is one allocation of global memory. Data begins at the address Base.
type Buffer struct {
	Base uint64
	Data []byte
	Name string
}

// Access describes the accesses of a launch to one buffer: the smallest range of bytes that
// includes all reads, and a second range for all writes. A range with From >= To is empty.
type Access struct {
	Buffer             *Buffer
	ReadFrom, ReadTo   int64
	WriteFrom, WriteTo int64
}

// Join extends a so that it also covers b, accesses to the same buffer.
func (a *Access) Join(b Access) {
	a.ReadFrom, a.ReadTo = hull(a.ReadFrom, a.ReadTo, b.ReadFrom, b.ReadTo)
	a.WriteFrom, a.WriteTo = hull(a.WriteFrom, a.WriteTo, b.WriteFrom, b.WriteTo)
}

// hull returns the smallest range that covers [from, to) and [from2, to2). An empty range (from ≥ to) counts as
// none.
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
	// Shared is the dynamic shared memory per block in bytes.
	Shared int
	// Params are the packed parameters, Kernel.ParamBytes long.
	Params []byte
	Memory Memory
	// Threads is the number of goroutines that run blocks; 0: GOMAXPROCS.
	Threads int
	// Together is how many blocks run by turns on one goroutine, in a random order that follows
	// from Seed. 0 or 1: blocks run one after the other. With more, blocks overlap as on a GPU, but
	// in the same way in every run.
	Together int
	// Seed determines the order of blocks, the order of the warps of a block, and when bulk copies land.
	Seed uint64
	// Period is the number of warp instructions per tick of %clock_hi; 0: 1<<32, consistent with the other clocks.
	// With a small Period a kernel soon reaches its own time limit for a wait. If Period is set, a wait for an
	// mbarrier that nothing completes returns false again and again instead of failing the launch.
	Period int64
	// CheckGlobal reports two kinds of races in global memory, in which at least one access is a write:
	//
	//   - two blocks access the same word without atomic instructions
	//   - two warps of a block access the same bytes without atomic instructions and without a barrier in between
	CheckGlobal bool
	// Only are the distinct numbers x + X·(y + Y·z) of the blocks to run; empty: all blocks.
	Only []uint32
	// Count receives the counts of the launch; nil: do not count.
	Count *Count

	steps int64 // warp instructions of the last Run
	idle  int   // strong loads of global memory since the last atomic instruction; guarded by atomics
}

// period returns Period, or its default if it is 0.
func (l *Launch) period() int64 {
	if l.Period > 0 {
		return l.Period
	}
	return 1 << 32
}

// Run executes the launch and returns its accesses. An error names the kernel, the PTX line, the block and the thread.
func (l *Launch) Run() ([]Access, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	blocks := uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2])
	if len(l.Only) > 0 {
		blocks = uint64(len(l.Only))
	}
	threads := l.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	j := &job{launch: l, blocks: blocks}
	j.from, j.step = permutation(blocks, mix(l.Seed))
	if l.CheckGlobal {
		j.global = &globalCheck{alone: blocks == 1, cells: map[*Buffer]*globalCells{}}
	}
	if l.Together > 1 {
		j.together()
	} else {
		helpers := min(uint64(threads), blocks) - 1
		var wg sync.WaitGroup
		for range helpers {
			wg.Go(j.work)
		}
		j.work()
		wg.Wait()
	}
	l.steps = j.steps
	if j.err != nil {
		return nil, j.err
	}
	return j.touched, nil
}

// check returns an error for a launch that the driver would reject.
func (l *Launch) check() error {
	k := l.Kernel
	n := 1
	for i := range 3 {
		if l.Grid[i] == 0 || l.Block[i] == 0 {
			return fmt.Errorf("%s: launched with grid %v and block %v", k.Name, l.Grid, l.Block)
		}
		n *= int(min(l.Block[i], 2048))
	}
	limit := 1024
	if k.MaxThreads > 0 {
		limit = k.MaxThreads
	}
	last := uint64(l.Grid[0])*uint64(l.Grid[1])*uint64(l.Grid[2]) - 1
	for _, b := range l.Only {
		if uint64(b) > last {
			return fmt.Errorf("%s: block %d of %d is to run", k.Name, b, last+1)
		}
	}
	switch {
	case n > limit:
		return fmt.Errorf("%s: %d threads in a block, at most %d", k.Name, n, limit)
	case l.Grid[0] > 1<<31-1 || l.Grid[1] > 65535 || l.Grid[2] > 65535:
		return fmt.Errorf("%s: grid %v is too large", k.Name, l.Grid)
	case uint64(l.Grid[0])*uint64(l.Grid[1])*uint64(l.Grid[2]) >= 1<<32:
		return fmt.Errorf("%s: %v blocks are too many for the emulator", k.Name, l.Grid)
	case len(l.Params) != k.ParamBytes:
		return fmt.Errorf("%s: %d bytes of parameters, wants %d", k.Name, len(l.Params), k.ParamBytes)
	case l.Shared < 0 || k.dynamic+l.Shared > 227<<10:
		return fmt.Errorf("%s: %d bytes of shared memory beside %d static ones", k.Name, l.Shared, k.StaticShared)
	}
	return nil
}

// job is a launch that is running, shared by the goroutines that run its blocks.
type job struct {
	launch     *Launch
	blocks     uint64
	next       atomic.Uint64
	from, step uint64
	global     *globalCheck

	mu      sync.Mutex
	touched []Access
	steps   int64
	err     error
}

// work runs thread blocks one after the other on this goroutine, until no block is left or some goroutine's block
// has failed.
func (j *job) work() {
	b := j.take()
	j.give(b, j.catch(func() {
		for b.begin(j); b.running; b.begin(j) {
			for b.turn() {
			}
		}
	}))
}

// together runs Launch.Together thread blocks by turns on one goroutine, until no block is left or
// one has failed.
func (j *job) together() {
	var all []*block
	for len(all) < j.launch.Together {
		all = append(all, j.take())
	}
	err := j.catch(func() {
		for n, left := uint64(0), len(all); left > 0; n++ {
			b := all[mix(j.launch.Seed+n)%uint64(left)]
			if b.running && b.turn() {
				continue
			}
			if b.begin(j); !b.running {
				left--
				i := slices.Index(all, b)
				all[i], all[left] = all[left], b
			}
		}
	})
	for _, b := range all {
		j.give(b, err)
	}
}

// take returns the state with which to run thread blocks of the launch. It comes from the kernel's
// pool, or is new.
func (j *job) take() *block {
	l := j.launch
	b, _ := l.Kernel.pool.Get().(*block)
	if b == nil {
		b = &block{}
	}
	b.global, b.count = j.global, nil
	if l.Count != nil {
		b.count = newCounter(l)
	}
	b.prepare(l)
	return b
}

// give adds the accesses and counts that b has collected to the launch, and returns b to the
// kernel's pool. If b has failed, err is the error.
func (j *job) give(b *block, err error) {
	l := j.launch
	for i := range b.slots {
		b.keep(&b.slots[i])
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range b.warps {
		j.steps += w.steps
		w.steps = 0
	}
	for _, a := range b.touched {
		j.touched = merge(j.touched, a)
	}
	if b.count != nil {
		b.count.into(l.Count)
	}
	b.launch, b.params, b.touched, b.count = nil, nil, nil, nil
	b.forgetPages()
	if err != nil {
		if j.err == nil {
			j.err = err
		}
		return // an interrupted block is not reused
	}
	l.Kernel.pool.Put(b)
}

// catch runs f. If f panics with an *Error (an incorrect access), catch returns the error, and no
// further block begins.
func (j *job) catch(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			j.next.Store(j.blocks)
			err = e
		}
	}()
	f()
	return nil
}

// number returns the number of the next thread block to run (at), and the seed for the order of its
// warps. If no block is left, it returns false.
func (j *job) number() (at uint32, seed uint64, ok bool) {
	i := j.next.Add(1) - 1
	if i >= j.blocks {
		return 0, 0, false
	}
	at = uint32((j.from + i*j.step) % j.blocks)
	if len(j.launch.Only) > 0 {
		at = j.launch.Only[at]
	}
	return at, j.launch.Seed + i, true
}

// knownSpecial reports whether a special register is supported.
func knownSpecial(name string) bool {
	base, axis, ok := strings.Cut(name, ".")
	switch base {
	case "%tid", "%ntid", "%ctaid", "%nctaid":
		return ok && (axis == "x" || axis == "y" || axis == "z")
	case "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt",
		"%lanemask_ge", "%dynamic_smem_size", "%total_smem_size":
		return !ok
	}
	return false
}

// fillSpecials sets the special registers that are the same for all blocks.
func (w *warp) fillSpecials(l *Launch) {
	for _, s := range w.kernel.specials {
		if !strings.HasPrefix(s.name, "%ctaid") {
			for i := range 32 {
				w.setSpecial(s, i, w.specialValue(s.name, i, l))
			}
		}
	}
}

// fillBlock sets the special registers that differ from block to block.
func (w *warp) fillBlock() {
	for _, s := range w.kernel.specials {
		if strings.HasPrefix(s.name, "%ctaid") {
			v := w.block.ctaid[s.name[7]-'x']
			for i := range 32 {
				w.setSpecial(s, i, v)
			}
		}
	}
}

func (w *warp) setSpecial(s special, lane int, v uint32) {
	if s.wide {
		w.r64[s.reg][lane] = uint64(v)
	} else {
		w.r32[s.reg][lane] = v
	}
}

func (w *warp) specialValue(name string, lane int, l *Launch) uint32 {
	base, axis, _ := strings.Cut(name, ".")
	switch base {
	case "%tid":
		return w.block.thread(32*w.index + lane)[axis[0]-'x']
	case "%ntid":
		return l.Block[axis[0]-'x']
	case "%nctaid":
		return l.Grid[axis[0]-'x']
	case "%laneid":
		return uint32(lane)
	case "%warpid":
		return uint32(w.index)
	case "%nwarpid":
		return uint32(len(w.block.warps))
	case "%nsmid":
		return 1
	case "%lanemask_eq":
		return 1 << lane
	case "%lanemask_lt":
		return 1<<lane - 1
	case "%lanemask_le":
		return 2<<lane - 1
	case "%lanemask_gt":
		return ^uint32(2<<lane - 1)
	case "%lanemask_ge":
		return ^uint32(1<<lane - 1)
	case "%dynamic_smem_size":
		return uint32(l.Shared)
	case "%total_smem_size":
		return uint32(len(w.block.shared))
	}
	return 0
}
