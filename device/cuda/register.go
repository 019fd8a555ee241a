package cuda

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"mt/internal/human"
)

// This file pins host memory. The driver pins some gigabytes a second with one thread, and a run
// has hundreds. So memory is registered in pieces, several at a time: each piece is a range of its
// own for the driver, and copies are cut where pieces meet (stream.go). Memory whose pages touch is merged before it
// is cut, so that a model of thousands of tiles has few pieces.

// Pieces end at multiples of pinPiece in the address space, so where huge pages end too. At most
// pinThreads are registered at a time.
const (
	pinPiece   = 256 << 20
	pinThreads = 8
)

// piece is a part of the memory that Register was given, which is registered at once.
type piece struct {
	mem []byte
	err error // why it is not pinned; nil: it is, or nobody has tried
}

// pieceSize is where pieces are cut: at multiples of it.
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

// ranges merges memory that overlaps, that has a page in common, or whose pages follow each other, and returns what comes
// out by address. The driver pins pages, and refuses one that is pinned already.
func (d *dev) ranges(memory [][]byte) (out [][]byte) {
	in := d.pageSize() - 1 // an address's part inside a page
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

// extend returns the bytes of memory from the beginning of b on, where b and what follows may be of several allocations.
//
//go:nocheckptr
func extend(b []byte, bytes uintptr) []byte { return unsafe.Slice(unsafe.SliceData(b), bytes) }

// pieces cuts memory into pieces, of so many bytes together.
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

// forAll calls f for every piece, for so many at a time where there is more of them than one piece can be.
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

// Register pins memory. Pieces that the system refuses to pin stay as they are, and copies from and to
// them are staged in pinned slabs; a unified device fails with that. After any other error nothing of memory is pinned.
func (d *dev) Register(memory ...[]byte) error { return d.RegisterBy(pinThreads, memory...) }

// RegisterBy is Register with so many pieces at a time, to measure what threads gain.
func (d *dev) RegisterBy(threads int, memory ...[]byte) error {
	pieces, total := d.pieces(memory)
	d.registerAll(pieces, total, threads)
	var refusal error
	var refusedBytes int64
	for _, p := range pieces {
		switch {
		case refused(p.err):
			refusal, refusedBytes = p.err, refusedBytes+int64(len(p.mem))
		case p.err != nil:
			d.Unregister(memory...)
			return fmt.Errorf("cuda: register %s of host memory: %s at %#x: %w; %s", human.Bytes(total), human.Bytes(int64(len(p.mem))), address(p.mem), p.err, pinHelp)
		}
	}
	if refusal != nil && d.Unified() {
		d.Unregister(memory...)
		return fmt.Errorf("cuda: register %s of host memory: %w; %w", human.Bytes(total), refusal, errBinding)
	}
	if refusal != nil {
		d.refuse(fmt.Sprintf("%s of %s", human.Bytes(refusedBytes), human.Bytes(total)), refusal)
	}
	return nil
}

// registerAll registers pieces of so many bytes together, until one fails that the system does not just refuse,
// and tells Options.Pinning how far that is.
func (d *dev) registerAll(pieces []piece, total int64, threads int) {
	var mu sync.Mutex // of what follows
	var done int64
	var failed atomic.Bool
	d.forAll(pieces, total, threads, func(p *piece) {
		if failed.Load() {
			return
		}
		switch p.err = d.cuda.HostRegister(d.context, p.mem); {
		case p.err == nil:
			d.mu.Lock()
			d.registered[address(p.mem)] = p.mem
			d.pin(p.mem)
			d.mu.Unlock()
		case !refused(p.err):
			failed.Store(true)
		}
		if mu.Lock(); d.opts.Pinning != nil {
			done += int64(len(p.mem))
			d.opts.Pinning(done, total)
		}
		mu.Unlock()
	})
}

// Unregister undoes Register; what was never registered is left alone.
func (d *dev) Unregister(memory ...[]byte) {
	pieces, total := d.pieces(memory)
	d.forAll(pieces, total, pinThreads, func(p *piece) {
		at := address(p.mem)
		d.mu.Lock()
		mem := d.registered[at]
		if mem != nil {
			delete(d.registered, at)
			d.unpin(at)
		}
		d.mu.Unlock()
		if mem != nil {
			d.release(func() error { return d.cuda.HostUnregister(d.context, mem) })
		}
	})
}
