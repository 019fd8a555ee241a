package cuda

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"mt/base/human"
)

// This file pins host memory. One thread pins a few GB a second, and a run has hundreds of GB. So
// memory is cut into pieces, and several threads pin a piece each. CUDA treats each piece as a
// separate range, and copies are cut where pieces meet (stream.go). Memory whose pages touch is
// merged before it is cut, so a model of thousands of tiles has few pieces.
//
// Register itself pins the memory that is used first. A goroutine pins the rest while the device
// works, in the order of first use. Until a piece is pinned, its copies go through staging memory,
// as for all unpinned memory.

// pinPiece is the largest size of a piece, the memory that one call of the driver pins. Pieces end at multiples of
// pinPiece in the address space, where huge pages end too.
//
// Before it returns, Register pins the bytes of pinThreads pieces, on as many threads. A goroutine pins the rest while
// the device works. It pins only pinBeside pieces at a time, because the driver may hold a lock that launches need.
const (
	pinPiece   = 256 << 20
	pinThreads = 8
	pinBeside  = 2
)

// piece is a range of host memory that one call of the driver pins.
type piece struct {
	mem []byte
	use int   // the first of Register's slices that shares bytes with the piece
	err error // why it is not pinned; nil: it is, or nobody has tried
}

// pinning is the part of a call of Register that a goroutine pins while the device works.
type pinning struct {
	pieces  []piece
	total   int64 // bytes of the whole call of Register
	refused refusals
	stop    atomic.Bool
	ended   sync.WaitGroup
}

// refusals sums up the memory that the system refused to pin.
type refusals struct {
	err   error // the reason for the last refusal
	bytes int64
}

// pieceSize returns the largest size of a piece in bytes. Pieces end at multiples of this size in the address space.
func (d *dev) pieceSize() int64 {
	if d.opts.PinPiece > 0 {
		return d.opts.PinPiece
	}
	return pinPiece
}

// pageSize returns the size of the host's pages in bytes.
func (d *dev) pageSize() uintptr {
	if d.opts.Page > 0 {
		return uintptr(d.opts.Page)
	}
	return uintptr(os.Getpagesize())
}

// ranges merges slices of memory that overlap, share a page, or have adjacent pages. It returns the merged ranges,
// sorted by address. The driver pins whole pages, and refuses a page that is already pinned.
func (d *dev) ranges(memory [][]byte) (out [][]byte) {
	in := d.pageSize() - 1 // mask of the offset in a page
	sorted := slices.DeleteFunc(slices.Clone(memory), func(b []byte) bool { return len(b) == 0 })
	slices.SortFunc(sorted, func(a, b []byte) int { return cmp.Compare(address(a), address(b)) })
	for _, b := range sorted {
		if n := len(out); n > 0 {
			last, end := out[n-1], address(out[n-1])+uintptr(len(out[n-1]))
			if address(b)&^in <= (end+in)&^in {
				out[n-1] = extend(last, max(end, address(b)+uintptr(len(b)))-address(last))
				continue
			}
		}
		out = append(out, b[:len(b):len(b)])
	}
	return out
}

// extend returns a slice that begins where b begins and has the given number of bytes. The bytes
// may belong to several allocations, which checkptr would report.
//
//go:nocheckptr
func extend(b []byte, bytes uintptr) []byte { return unsafe.Slice(unsafe.SliceData(b), bytes) }

// pieces cuts memory into pieces, and returns them and their total bytes. One call of the driver pins one piece.
func (d *dev) pieces(memory [][]byte) (out []piece, total int64) {
	each := uintptr(d.pieceSize())
	for _, b := range d.ranges(memory) {
		total += int64(len(b))
		for len(b) > 0 {
			n := min(uintptr(len(b)), each-address(b)%each)
			out = append(out, piece{mem: b[:n:n]})
			b = b[n:]
		}
	}
	return out, total
}

// forAll calls f for every piece, on at most threads goroutines at a time, and waits for all calls.
// The size of all pieces, total bytes, also limits the number of goroutines.
func (d *dev) forAll(pieces []piece, total int64, threads int, f func(*piece)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(int64(threads), (total+d.pieceSize()-1)/d.pieceSize()) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(pieces); i = int(next.Add(1)) - 1 {
				f(&pieces[i])
			}
		})
	}
	all.Wait()
}

// byFirstUse sorts pieces in the order of their first use. The slices in memory are used in order,
// and a piece is used with the first slice that shares bytes with it. Before the call the pieces
// must be sorted by address.
func byFirstUse(pieces []piece, memory [][]byte) {
	for i := range pieces {
		pieces[i].use = len(memory)
	}
	for use, b := range memory {
		end := address(b) + uintptr(len(b))
		first, _ := slices.BinarySearchFunc(pieces, address(b), func(p piece, at uintptr) int {
			if address(p.mem)+uintptr(len(p.mem)) <= at {
				return -1
			}
			return 1
		})
		for i := first; i < len(pieces) && address(pieces[i].mem) < end; i++ {
			pieces[i].use = min(pieces[i].use, use)
		}
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.use, b.use) })
}

// Register pins memory, which is given in the order of its first use. Before it returns, it pins
// the bytes of up to pinThreads pieces. A goroutine pins the rest while the device works. Copies of
// pieces that the system refuses to pin go through staging buffers. A unified device pins
// everything before Register returns, and a refusal is an error. If another error occurs before
// Register returns, nothing of memory is pinned.
func (d *dev) Register(memory ...[]byte) error {
	if d.leaving.Load() {
		return nil
	}
	if d.Unified() {
		return d.RegisterBy(pinThreads, memory...)
	}
	pieces, total := d.pieces(memory)
	byFirstUse(pieces, memory)
	n, bytes := 0, int64(0)
	for n < len(pieces) && bytes < pinThreads*d.pieceSize() {
		bytes += int64(len(pieces[n].mem))
		n++
	}
	refused, err := d.registerFirst(pieces[:n], bytes, pinThreads)
	if err != nil || n == len(pieces) {
		d.noteRefused(refused, total)
		return err
	}
	d.registerBeside(&pinning{pieces: pieces[n:], total: total, refused: refused})
	return nil
}

// RegisterBy pins all memory before it returns, with up to threads pieces at a time. Register calls
// it for a unified device, and measurements call it to show how much several threads gain.
func (d *dev) RegisterBy(threads int, memory ...[]byte) error {
	pieces, total := d.pieces(memory)
	refused, err := d.registerFirst(pieces, total, threads)
	if err == nil && refused.err != nil && d.Unified() {
		d.unregister(pieces, total)
		return fmt.Errorf("cuda: register %s of host memory: %w; %w", human.Bytes(total), refused.err, ErrNotPinned)
	}
	d.noteRefused(refused, total)
	return err
}

// registerFirst pins pieces before Register returns, up to threads at a time; bytes is their total
// size. It returns the memory that the system refused to pin. After any other error none of the
// pieces is pinned.
func (d *dev) registerFirst(pieces []piece, bytes int64, threads int) (out refusals, err error) {
	d.registerAll(pieces, bytes, threads)
	for _, p := range pieces {
		switch {
		case refused(p.err):
			out.add(&p)
		case p.err != nil:
			d.unregister(pieces, bytes)
			return refusals{}, fmt.Errorf("cuda: register %s of host memory: %s at %#x: %w; %s", human.Bytes(bytes), human.Bytes(int64(len(p.mem))), address(p.mem), p.err, pinHelp)
		}
	}
	return out, nil
}

func (r *refusals) add(p *piece) { r.err, r.bytes = p.err, r.bytes+int64(len(p.mem)) }

// noteRefused adds a note for the user if the system refused to pin memory: how much of total
// bytes, and why.
func (d *dev) noteRefused(r refusals, total int64) {
	if r.err != nil {
		d.refuse(fmt.Sprintf("%s of %s", human.Bytes(r.bytes), human.Bytes(total)), r.err)
	}
}

// registerAll pins pieces, on at most threads goroutines, until one fails. A refusal by the system
// sets the piece's error and does not count as failure. It reports progress to Options.Pinning;
// total is the size of all pieces in bytes.
func (d *dev) registerAll(pieces []piece, total int64, threads int) {
	var mu sync.Mutex // guards the following variables
	var done int64
	var failed atomic.Bool
	d.forAll(pieces, total, threads, func(p *piece) {
		if failed.Load() {
			return
		}
		if d.register(p); p.err != nil && !refused(p.err) {
			failed.Store(true)
		}
		if mu.Lock(); d.opts.Pinning != nil {
			done += int64(len(p.mem))
			d.opts.Pinning(done, total)
		}
		mu.Unlock()
	})
}

// register pins the piece p. If the driver does not pin it, register stores the error in p.err.
func (d *dev) register(p *piece) {
	if p.err = d.cuda.HostRegister(d.context, p.mem); p.err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registered[address(p.mem)] = p.mem
	d.pin(p.mem)
}

// registerBeside starts a goroutine that pins r, the part of a call of Register that is not used
// first, while the device works.
func (d *dev) registerBeside(r *pinning) {
	d.mu.Lock()
	d.pinnings = append(d.pinnings, r)
	d.mu.Unlock()
	r.ended.Go(func() {
		d.forAll(r.pieces, r.total, pinBeside, func(p *piece) {
			if d.beside != nil {
				d.beside(p)
			}
			if r.stop.Load() {
				return
			}
			if d.register(p); p.err != nil && !refused(p.err) {
				r.stop.Store(true)
			}
		})
		d.endPinning(r)
	})
}

// endPinning is called when the goroutine that pins r has ended. It notes how much memory the
// system refused to pin. It keeps other errors for Close, because no other call returns them.
func (d *dev) endPinning(r *pinning) {
	for _, p := range r.pieces {
		switch {
		case refused(p.err):
			r.refused.add(&p)
		case p.err != nil:
			err := fmt.Errorf("register %s of host memory: %s at %#x: %w; %s", human.Bytes(r.total), human.Bytes(int64(len(p.mem))), address(p.mem), p.err, pinHelp)
			d.noteOnce("pinning failed", fmt.Sprintf("%v; copies from and to memory that is not pinned go through staging memory, slower", err))
			d.regret(err)
		}
	}
	d.noteRefused(r.refused, r.total)
}

// AwaitPinned waits until no goroutine is pinning memory any more.
func (d *dev) AwaitPinned() {
	d.mu.Lock()
	all := slices.Clone(d.pinnings)
	d.mu.Unlock()
	for _, r := range all {
		r.ended.Wait()
	}
}

// stopPinning stops the goroutines that pin memory in the background, and waits until they have
// ended. It stops only those that pin one of pieces; if pieces is nil, all.
func (d *dev) stopPinning(pieces []piece) {
	at := map[uintptr]bool{}
	for _, p := range pieces {
		at[address(p.mem)] = true
	}
	var mine []*pinning
	d.mu.Lock()
	d.pinnings = slices.DeleteFunc(d.pinnings, func(r *pinning) bool {
		is := pieces == nil
		for i := range r.pieces { // other fields of the pieces are being written
			is = is || at[address(r.pieces[i].mem)]
		}
		if is {
			mine = append(mine, r)
		}
		return is
	})
	d.mu.Unlock()
	for _, r := range mine {
		r.stop.Store(true)
	}
	for _, r := range mine {
		r.ended.Wait()
	}
}

// Unregister unpins memory that Register has pinned, and ignores any other memory. After a call of LeavePinned,
// Unregister unpins nothing: the process is about to end, and the system then unpins its memory anyway.
func (d *dev) Unregister(memory ...[]byte) {
	pieces, total := d.pieces(memory)
	if len(pieces) > 0 {
		d.stopPinning(pieces)
		d.unregister(pieces, total)
	}
}

func (d *dev) unregister(pieces []piece, total int64) {
	d.forAll(pieces, total, pinThreads, func(p *piece) {
		at := address(p.mem)
		d.mu.Lock()
		mem := d.registered[at]
		if mem != nil {
			delete(d.registered, at)
			d.unpin(at)
		}
		d.mu.Unlock()
		if mem != nil && !d.leaving.Load() {
			d.release(func() error { return d.cuda.HostUnregister(d.context, mem) })
		}
	})
}

// LeavePinned says that the process ends with the device. From then on the device unpins nothing
// and Close leaves the context alone: both take long, and the system does it anyway when a process
// ends. The device also pins nothing more, since memory that stays pinned would be reused at the
// same address. Later memory is copied through staging memory.
func (d *dev) LeavePinned() {
	d.leaving.Store(true)
	d.stopPinning(nil)
}
