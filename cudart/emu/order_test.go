package emu_test

import (
	"errors"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

// TestCopyBeforeItsEvent: if one stream reads bytes that another stream writes, and waits for the
// writer's event, there is no fault. Without the wait there is one, whichever of the two runs
// first.
func TestCopyBeforeItsEvent(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		for _, waits := range []bool{true, false} {
			r := open(t, o)
			h2d, compute := r.stream(), r.stream()
			ready := r.event()
			src := r.host(256)
			a, b := r.malloc(256), r.malloc(256)
			r.h2d(a, src, h2d)
			r.must(r.EventRecord(ready, h2d))
			if waits {
				r.must(r.StreamWaitEvent(compute, ready))
			}
			r.d2d(b, a+128, 128, compute)
			r.sync(h2d)
			r.sync(compute)
			if !waits {
				r.expect(emu.Order, "copy on device of 128 bytes", "copy to device of 256 bytes", "stream #1", "stream #2",
					"bytes 128 to 256 of device memory #1")
				continue
			}
			r.must(errors.Join(r.Free(a), r.Free(b), r.FreeHost(src), r.EventDestroy(ready), r.StreamDestroy(h2d), r.StreamDestroy(compute)))
			r.close()
		}
	})
}

// TestReusedTooEarly: refilling a buffer while a copy may still read it is a fault, unless an event
// orders the two.
func TestReusedTooEarly(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		for _, waits := range []bool{true, false} {
			r := open(t, o)
			h2d, compute := r.stream(), r.stream()
			ready, idle := r.event(), r.event()
			src := r.host(256)
			a, b := r.malloc(256), r.malloc(256)
			for range 2 {
				if waits {
					r.must(r.StreamWaitEvent(h2d, idle))
				}
				r.h2d(a, src, h2d)
				r.must(r.EventRecord(ready, h2d))
				r.must(r.StreamWaitEvent(compute, ready))
				r.d2d(b, a, 256, compute)
				r.must(r.EventRecord(idle, compute))
			}
			r.sync(compute)
			if !waits {
				r.expect(emu.Order, "copy on device", "copy to device", "device memory #1")
				continue
			}
			r.must(errors.Join(r.Free(a), r.Free(b), r.FreeHost(src), r.EventDestroy(ready), r.EventDestroy(idle),
				r.StreamDestroy(h2d), r.StreamDestroy(compute)))
			r.close()
		}
	})
}

// TestDisjointBytesNeedNoOrder: unordered streams that access different bytes, or only read the
// same bytes, cause no fault.
func TestDisjointBytesNeedNoOrder(t *testing.T) {
	r := open(t, emu.Options{Mode: emu.Random})
	s1, s2 := r.stream(), r.stream()
	a, b := r.malloc(1024), r.malloc(1024)
	r.must(r.MemsetAsync(b, 1, 1024, s1))
	r.sync(s1) // later work on s2 is ordered after this wait
	for i := range 8 {
		r.must(r.MemsetAsync(a+0, byte(i), 511, s1))
		r.must(r.MemsetAsync(a+511, byte(i), 513, s2))
		r.d2d(a+3, b+100, 200, s1)
		r.d2d(a+700, b+90, 200, s2)
	}
	r.sync(s1)
	r.sync(s2)
	r.must(errors.Join(r.Free(a), r.Free(b), r.StreamDestroy(s1), r.StreamDestroy(s2)))
	r.close()
}

// TestOrderThroughTheHost: an operation that is enqueued after the host has waited for another one
// is ordered after it. No event is needed.
func TestOrderThroughTheHost(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := open(t, o)
		s1, s2 := r.stream(), r.stream()
		e := r.event()
		a := r.malloc(64)
		r.must(r.MemsetAsync(a, 1, 64, s1))
		r.must(r.EventRecord(e, s1))
		r.must(r.EventSynchronize(e))
		r.must(r.MemsetAsync(a, 2, 64, s2))
		r.sync(s2)
		if f := r.d.Faults(); len(f) > 0 {
			t.Fatalf("with synchronisation: %v", f)
		}
		r.must(r.MemsetAsync(a, 3, 64, s1)) // only the host knows that s2's work is complete
		r.must(r.MemsetAsync(a, 4, 64, s2)) // unordered with the previous operation
		r.sync(s1)
		r.sync(s2)
		r.expect(emu.Order, "stream #1", "stream #2")
	})
}

// TestOrderOfPinnedMemory: a copy that writes pinned memory while another copy may still read it is
// a fault.
func TestOrderOfPinnedMemory(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := open(t, o)
		h2d, d2h := r.stream(), r.stream()
		slab := pageable(4096)
		r.must(r.HostRegister(slab))
		a, b := r.malloc(100), r.malloc(100)
		r.must(r.MemsetAsync(b, 1, 100, d2h))
		r.h2d(a, slab[10:110], h2d)
		r.d2h(slab[100:200], b, d2h)
		r.sync(h2d)
		r.sync(d2h)
		r.expect(emu.Order, "registered host memory #1", "bytes 100 to 110")
	})
}

// TestHostChangesItsSide: it is a fault if the host changes pinned memory that a pending copy reads
// or fills.
func TestHostChangesItsSide(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(src, dst []byte)
		says  string
	}{
		{"source", func(src, dst []byte) { src[5]++ }, "copy to device of 64 bytes on stream #1], 64 bytes in allocated host memory #1"},
		{"destination", func(src, dst []byte) { dst[63]++ }, "copy to host of 64 bytes on stream #1], 64 bytes in allocated host memory #2"},
		{"neither", func(src, dst []byte) { src[64]++ }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := open(t, emu.Options{Mode: emu.Lazy})
			s := r.stream()
			a := r.malloc(64)
			src, dst := r.host(65), r.host(64)
			r.h2d(a, src[:64], s)
			r.d2h(dst, a, s)
			r.h2d(a, dst, s) // an operation, not the host, changes the source, which is allowed
			c.write(src, dst)
			r.sync(s)
			if c.says != "" {
				r.expect(emu.Order, "the host changed", c.says)
				return
			}
			r.must(errors.Join(r.Free(a), r.FreeHost(src), r.FreeHost(dst), r.StreamDestroy(s)))
			r.close()
		})
	}
}

// TestFreedInUse: it is a fault to free memory before the host has waited for the work that uses
// it.
func TestFreedInUse(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := open(t, o)
		s := r.stream()
		a := r.malloc(64)
		r.must(r.MemsetAsync(a, 1, 64, s))
		r.must(r.Free(a))
		r.expect(emu.Order, "cudaFree of device memory #1", "set of 64 bytes", "stream #1")
	})
	r := open(t, emu.Options{Mode: emu.Lazy})
	s := r.stream()
	a := r.malloc(64)
	slab := r.host(64)
	r.h2d(a, slab, s)
	r.must(r.FreeHost(slab))
	r.expect(emu.Order, "cudaFreeHost of allocated host memory #1", "copy to device")
}

// TestHistoryStaysSmall: after thousands of accesses to parts of a buffer, its history is short and
// still shows a wrong access.
func TestHistoryStaysSmall(t *testing.T) {
	r := open(t, emu.Options{})
	s1, s2 := r.stream(), r.stream()
	a, b := r.malloc(1<<16), r.malloc(1<<16)
	for i := range int64(2000) {
		at := cudart.DevicePtr(i * 31)
		r.must(r.MemsetAsync(a+at, 1, 8+i%50, s1))
		r.d2d(b+at, a+at+3, 5, s1)
		r.d2d(b+at+10, a+at, 1+i%60, s1)
	}
	r.sync(s1)
	r.must(r.MemsetAsync(b, 1, 1<<16, s1))
	r.must(r.MemsetAsync(b+0xffff, 1, 1, s2))
	r.sync(s1)
	r.sync(s2)
	r.expect(emu.Order, "bytes 65535 to 65536 of device memory #2")
}
