package ptx

import "math/bits"

// warp is the state of 32 threads that execute in lockstep.
type warp struct {
	block     *block
	kernel    *Kernel
	index     int
	r32       []lanes32
	r64       []lanes64
	preds     []uint32
	live      uint32 // mask of the threads that have not exited
	stack     []frame
	tmp32     lanes32 // results of an instruction before those of active threads are copied
	tmp64     lanes64
	opA       lanes32 // converted operands of famWrapped
	opB       lanes32
	opC       lanes32
	addr      lanes64 // the addresses of the threads' accesses
	bounds    [3][8]uint32
	bounds64  [3][4]uint64
	wait      *barrier // the barrier that the warp waits at
	poll      *inst    // the instruction with which the warp waits for an mbarrier or registers; it is executed again
	polled    uint32   // mask of the threads that execute poll
	giveUp    bool     // end the wait of poll although its phase is not over
	stored    uint32   // mask of the threads that have stored to shared memory since their last fence.proxy.async
	registers int      // registers of each thread, in kernels with setmaxnreg
	products  products
	guards    []guardedRegister
	bulk      bulkCopies
	async     copies
	local     []byte
	mma       matrices
	pc        int32 // current instruction, for errors
	steps     int64 // instructions that the warp has executed
}

// frame is a set of threads of a warp that run together, from pc until they reach the instruction at join. A warp
// whose threads diverge has a stack of frames. When the top one reaches join, the next continues.
type frame struct {
	pc, join int32
	mask     uint32
}

// state says why warp.run returned: the warp ended, waits, or gives the others a turn.
type state uint8

const (
	stateDone state = iota
	stateWaiting
	stateYield
)

// sliceSteps is how many instructions a warp may run before the other warps of its block get a
// turn. Without a limit, a warp that spins until another warp writes to memory would spin forever.
const sliceSteps = 1 << 22

// start prepares the warp for a new thread block, at the kernel's first instruction. mask has the
// threads that exist.
func (w *warp) start(mask uint32) {
	w.live = mask
	w.stack = append(w.stack[:0], frame{0, -1, mask})
	w.wait = nil
	w.async.reset()
	if w.kernel.async {
		w.startAsync()
	}
}

// startAsync clears what earlier thread blocks left in the warp's state of asynchronous instructions.
func (w *warp) startAsync() {
	w.poll, w.polled, w.giveUp, w.stored = nil, 0, false, 0
	w.registers = w.kernel.registersAtStart()
	w.products.group, w.products.fenced, w.products.pending = 0, -1, w.products.pending[:0]
	clear(w.guards)
	w.bulk = bulkCopies{pending: w.bulk.pending[:0]}
}

// run executes instructions until the warp ends, waits, has used its time slice (sliceSteps) or has
// read memory that another block may write. It returns which of these happened.
func (w *warp) run() state {
	code, touches := w.kernel.code, w.kernel.touches
	limit := w.steps + sliceSteps
	for {
		f := &w.stack[len(w.stack)-1]
		pc, join, all := f.pc, f.join, f.mask
		for pc != join {
			in := &code[pc]
			w.pc = pc
			w.steps++
			mask := all
			if in.guard >= 0 {
				p := w.preds[in.guard]
				if in.not {
					p = ^p
				}
				mask &= p
			}
			if w.block.count != nil && w.poll == nil {
				w.block.count.note(w, pc, in, mask, all)
			}
			if mask == 0 && in.fam != famControl {
				pc++
				continue
			}
			if touches != nil && mask != 0 && touches[pc] != nil {
				w.touch(in, touches[pc], mask)
			}
			switch in.fam {
			case famLoad:
				w.load(in, mask)
				if in.flags&flagStrong != 0 {
					limit = w.steps // yield at the next branch
				}
			case famMbar:
				if w.mbarrier(in, mask) {
					w.stack[len(w.stack)-1].pc = pc
					return stateWaiting
				}
			case famBarrier:
				if w.arrive(in, mask) {
					w.stack[len(w.stack)-1].pc = pc + 1
					return stateWaiting
				}
			case famControl:
				f := &w.stack[len(w.stack)-1]
				f.pc = pc + 1
				if w.control(in, mask, f) {
					if w.settle() {
						return stateDone
					}
					f = &w.stack[len(w.stack)-1]
				}
				pc, join, all = f.pc, f.join, f.mask
				if w.steps >= limit {
					return stateYield
				}
				continue
			default:
				w.compute(in, mask)
			}
			pc++
		}
		w.stack = w.stack[:len(w.stack)-1]
		if w.settle() {
			return stateDone
		}
	}
}

// compute executes an instruction that does not change the control flow.
func (w *warp) compute(in *inst, mask uint32) {
	switch in.fam {
	case fam32:
		if mask == full {
			exec32(in, &w.r32[in.d], &w.r32[in.a], &w.r32[in.b], &w.r32[in.c], &w.r32[in.e])
		} else {
			exec32(in, &w.tmp32, &w.r32[in.a], &w.r32[in.b], &w.r32[in.c], &w.r32[in.e])
			blend32(&w.r32[in.d], &w.tmp32, mask)
		}
	case fam64:
		if mask == full {
			exec64(in, &w.r64[in.d], w)
		} else {
			exec64(in, &w.tmp64, w)
			blend64(&w.r64[in.d], &w.tmp64, mask)
		}
	case famMixed:
		w.mixed(in, mask)
	case famCompare:
		w.compare(in, mask)
	case famStore:
		w.store(in, mask)
	case famWrapped:
		w.wrapped(in, mask)
	case famConvert:
		w.convert(in, mask)
	case famMatrix:
		w.matrix(in, mask)
	case famCopy:
		w.copyAsync(in, mask)
	case famWarp:
		w.exchange(in, mask)
	case famAtomic:
		w.atomic(in, mask)
	case famBulk:
		w.bulkAsync(in, mask)
	case famGroup:
		w.groupwise(in, mask)
	}
}

// settle drops the frames on top of the stack whose threads have all exited. It returns true if no frame is left.
func (w *warp) settle() bool {
	for len(w.stack) > 0 {
		f := &w.stack[len(w.stack)-1]
		f.mask &= w.live
		if f.mask != 0 {
			return false
		}
		w.stack = w.stack[:len(w.stack)-1]
	}
	return true
}

// control executes a branch, an exit or another instruction of famControl for the threads of mask; f is the top
// frame. It returns true if the stack of frames changed.
func (w *warp) control(in *inst, mask uint32, f *frame) bool {
	switch in.op {
	case opBra:
		switch mask {
		case 0:
		case f.mask:
			f.pc = int32(in.imm)
		default:
			w.part(in, f.pc, int32(in.imm), f.mask&^mask, mask)
			return true
		}
	case opBrx:
		return w.table(in, mask, f)
	case opExit:
		if mask != 0 {
			w.live &^= mask
			return true
		}
	case opFenceProxy:
		w.fenceProxy(mask)
	case opFenceMbar:
		if w.block.proxy != nil {
			w.block.proxy.publish(w, mask)
		}
	case opTrap:
		if mask != 0 {
			w.fail(in, bits.TrailingZeros32(mask), "the kernel executes trap")
		}
	}
	return false
}

// part splits the top frame in two at a branch: the threads in mask1 continue at pc1, the threads in mask2 at pc2.
// Both reconverge at instruction in.e.
func (w *warp) part(in *inst, pc1, pc2 int32, mask1, mask2 uint32) {
	f := &w.stack[len(w.stack)-1]
	join := in.e
	if join < 0 || join == f.join {
		join = f.join
		w.stack = w.stack[:len(w.stack)-1]
	} else {
		f.pc = join
	}
	w.stack = append(w.stack, frame{pc1, join, mask1}, frame{pc2, join, mask2})
}

// table executes brx.idx, a branch to a target from a table, for the threads of mask. It makes a
// frame for each target that some thread chooses.
func (w *warp) table(in *inst, mask uint32, f *frame) bool {
	next, left := f.pc, mask
	targets := in.x.targets
	index := &w.r32[in.a]
	whole := *f
	join := in.e
	if join < 0 || join == f.join {
		join = f.join
		w.stack = w.stack[:len(w.stack)-1]
	} else {
		f.pc = join
	}
	if rest := whole.mask &^ mask; rest != 0 {
		w.stack = append(w.stack, frame{next, join, rest})
	}
	for left != 0 {
		lane := bits.TrailingZeros32(left)
		if uint64(index[lane]) >= uint64(len(targets)) {
			w.fail(in, lane, "index %d into a table of %d branches", index[lane], len(targets))
		}
		same := uint32(0)
		for m := left; m != 0; m &= m - 1 {
			if i := bits.TrailingZeros32(m); targets[index[i]] == targets[index[lane]] {
				same |= 1 << i
			}
		}
		w.stack = append(w.stack, frame{targets[index[lane]], join, same})
		left &^= same
	}
	return true
}

func blend32(d, s *lanes32, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros32(mask) & 31
		d[i] = s[i]
	}
}

func blend64(d, s *lanes64, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros32(mask) & 31
		d[i] = s[i]
	}
}
