package cuda

import (
	"fmt"
	"runtime"

	"mt/base/parallel"
	"mt/cudart"
	"mt/device"
)

// slab is one pinned buffer in host memory. Copies of unpinned memory go through it piece by piece.
type slab struct {
	mem  []byte
	done cudart.Event // recorded after the last copy from or to the slab
	busy bool         // done is recorded, and nobody has waited for it
}

// A slab's size is half the largest copy so far, within these limits. A copy of mostSlab takes a few milliseconds on
// the link, which hides the time of a CUDA call.
const (
	leastSlab = 64 << 10
	mostSlab  = 8 << 20
)

// staging copies unpinned memory to and from the device, on the stream's worker. It has two slabs: while the link
// copies one, the worker fills or empties the other.
type staging struct {
	stream *stream
	slabs  [2]slab
	pool   *parallel.Pool // threads that copy within host memory
}

// prepare ensures that the slabs are large enough for a copy of n bytes, and allocates larger ones if not.
func (g *staging) prepare(n int64) error {
	d := g.stream.dev
	if g.pool == nil {
		g.pool = parallel.New(min(4, runtime.GOMAXPROCS(0)))
	}
	want := int64(leastSlab)
	for want < mostSlab && 2*want < n {
		want *= 2
	}
	for i := range g.slabs {
		sl := &g.slabs[i]
		if sl.done == 0 {
			e, err := d.takeEvent()
			if err != nil {
				return err
			}
			sl.done = e
		}
		if int64(len(sl.mem)) >= want {
			continue
		}
		if err := g.settle(sl); err != nil {
			return err
		}
		d.FreeHost(sl.mem)
		sl.mem = nil
		mem, err := d.AllocHost(want)
		if err != nil {
			return fmt.Errorf("staging memory: %w", err)
		}
		sl.mem = mem
	}
	return nil
}

// settle waits until the last copy from or to the slab has ended, so that the host may use its
// memory again.
func (g *staging) settle(sl *slab) error {
	if !sl.busy {
		return nil
	}
	sl.busy = false
	return g.stream.dev.cuda.EventSynchronize(g.stream.dev.context, sl.done)
}

// piece returns the i-th piece of a copy of n bytes: its offset, its size in bytes, and the staging
// buffer through which it goes. Pieces use the two buffers in turn. The size is 0 if the copy has
// fewer pieces.
func (g *staging) piece(i int, n int64) (off, size int64, sl *slab) {
	each := int64(min(len(g.slabs[0].mem), len(g.slabs[1].mem)))
	off = min(n, int64(i)*each)
	return off, min(each, n-off), &g.slabs[i%len(g.slabs)]
}

// up copies src to the device through the slabs. It returns when the last piece is enqueued; src may then change.
func (g *staging) up(dst device.Mem, src []byte) error {
	n := int64(len(src))
	if err := g.prepare(n); err != nil {
		return err
	}
	for i := 0; ; i++ {
		off, size, sl := g.piece(i, n)
		if size == 0 {
			return nil
		}
		if err := g.settle(sl); err != nil {
			return err
		}
		g.copy(sl.mem[:size], src[off:off+size])
		if err := g.enqueue(sl, dst.Addr+uintptr(off), address(sl.mem), size, cudart.HostToDevice); err != nil {
			return err
		}
	}
}

// down copies src from the device through the slabs. It returns when all bytes are in dst.
func (g *staging) down(dst []byte, src device.Mem) error {
	n := int64(len(dst))
	if err := g.prepare(n); err != nil {
		return err
	}
	for i := 0; ; i++ {
		off, size, sl := g.piece(i, n)
		if size > 0 {
			if err := g.settle(sl); err != nil { // a copy to the device
				return err
			}
			if err := g.enqueue(sl, address(sl.mem), src.Addr+uintptr(off), size, cudart.DeviceToHost); err != nil {
				return err
			}
		}
		if i > 0 { // the previous piece has arrived, or arrives here
			off, size, sl := g.piece(i-1, n)
			if err := g.settle(sl); err != nil {
				return err
			}
			g.copy(dst[off:off+size], sl.mem[:size])
		}
		if size == 0 {
			return nil
		}
	}
}

// enqueue enqueues a copy of size bytes between the slab sl and the device, from src to dst. Then
// it records sl.done, the event that tells when sl is free again.
func (g *staging) enqueue(sl *slab, dst, src uintptr, size int64, kind cudart.MemcpyKind) error {
	s := g.stream
	if err := s.dev.cuda.MemcpyAsync(s.dev.context, dst, src, size, kind, s.cuda); err != nil {
		return err
	}
	err := s.dev.cuda.EventRecord(s.dev.context, sl.done, s.cuda)
	if sl.busy = err == nil; err != nil {
		return err
	}
	return s.copied("cudaMemcpyAsync", [...]string{cudart.HostToDevice: "CopyH2D", cudart.DeviceToHost: "CopyD2H"}[kind], size, leastLink)
}

// copy copies src to dst in host memory. It uses several threads, because one thread copies slower
// than the link to the GPU.
func (g *staging) copy(dst, src []byte) {
	const part = 512 << 10
	g.pool.Run((len(src)+part-1)/part, func(i int) {
		copy(dst[i*part:min(len(dst), (i+1)*part)], src[i*part:])
	})
}

// free releases the slabs and ends the threads. All copies of the stream must have ended.
func (g *staging) free() {
	if g.pool == nil {
		return
	}
	for _, sl := range g.slabs {
		g.stream.dev.FreeHost(sl.mem)
		if sl.done != 0 {
			g.stream.dev.giveEvent(sl.done)
		}
	}
	g.slabs = [2]slab{}
	g.pool.Close()
	g.pool = nil
}
