package emu_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

func TestCopiesThereAndBack(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := open(t, o)
		s := r.stream()
		src, dst := r.host(1000), r.host(1000)
		for i := range src {
			src[i] = byte(i)
		}
		a, b := r.malloc(1000), r.malloc(1000)
		r.h2d(a, src, s)
		r.must(r.MemsetAsync(b, 0x11, 1000, s))
		r.d2d(b+10, a+20, 500, s)
		r.d2h(dst, b, s)
		r.sync(s)
		want := bytes.Repeat([]byte{0x11}, 1000)
		copy(want[10:510], src[20:])
		if !bytes.Equal(dst, want) {
			t.Error("other bytes came back")
		}
		r.must(r.Free(a))
		r.must(r.Free(b))
		r.must(r.FreeHost(src))
		r.must(r.FreeHost(dst))
		r.must(r.StreamDestroy(s))
		r.close()
	})
}

func TestEventsOrderStreams(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		for seed := range uint64(20) {
			o.Seed = seed
			r := open(t, o)
			s1, s2 := r.stream(), r.stream()
			e, back := r.event(), r.event()
			a, b := r.malloc(4), r.malloc(4)
			out := r.host(4)
			for i := range byte(3) {
				r.must(r.StreamWaitEvent(s1, back)) // an event that was never recorded counts as complete
				r.must(r.MemsetAsync(a, i, 4, s1))
				r.must(r.EventRecord(e, s1))
				r.must(r.StreamWaitEvent(s2, e))
				r.d2d(b, a, 4, s2)
				r.must(r.EventRecord(back, s2))
			}
			r.must(r.EventDestroy(e)) // the record still completes
			r.d2h(out, b, s2)
			r.sync(s2)
			if out[0] != 2 {
				t.Errorf("seed %d: got %d, want 2", seed, out[0])
			}
			r.sync(s1)
			r.must(errors.Join(r.Free(a), r.Free(b), r.FreeHost(out), r.EventDestroy(back), r.StreamDestroy(s1), r.StreamDestroy(s2)))
			r.close()
		}
	})
}

func TestNothingRunsBeforeItMust(t *testing.T) {
	r := open(t, emu.Options{Mode: emu.Lazy})
	s := r.stream()
	e := r.event()
	out := r.host(4)
	a := r.malloc(4)
	out[0] = 99
	r.must(r.MemsetAsync(a, 5, 4, s))
	r.d2h(out, a, s)
	r.must(r.EventRecord(e, s))
	if out[0] != 99 {
		t.Error("the copy ran before anybody waited")
	}
	r.must(r.EventSynchronize(e))
	if out[0] != 5 {
		t.Errorf("got %d, want 5", out[0])
	}
	r.must(errors.Join(r.Free(a), r.FreeHost(out), r.EventDestroy(e), r.StreamDestroy(s)))
	r.close()
}

func TestWaitRefersToTheLastRecordBeforeIt(t *testing.T) {
	r := open(t, emu.Options{Mode: emu.Lazy})
	s1, s2 := r.stream(), r.stream()
	e := r.event()
	a, b := r.malloc(4), r.malloc(4)
	r.must(r.MemsetAsync(a, 1, 4, s1))
	r.must(r.EventRecord(e, s1))
	r.must(r.StreamWaitEvent(s2, e))
	r.must(r.MemsetAsync(b, 1, 4, s1))
	r.must(r.EventRecord(e, s1)) // s2 does not wait for this one
	r.must(r.MemsetAsync(a, 2, 4, s2))
	r.must(r.MemsetAsync(b, 2, 4, s2))
	r.sync(s2)
	r.sync(s1)
	r.expect(emu.Order, "set of 4 bytes", "stream #1", "stream #2", "device memory #2")
}

// TestRandomOrders: with different seeds, mode Random runs two unordered operations in different
// orders.
func TestRandomOrders(t *testing.T) {
	last := map[byte]bool{}
	for seed := range uint64(30) {
		r := open(t, emu.Options{Mode: emu.Random, Seed: seed})
		s1, s2 := r.stream(), r.stream()
		a := r.malloc(1)
		r.must(r.MemsetAsync(a, 1, 1, s1))
		r.must(r.MemsetAsync(a, 2, 1, s2))
		r.sync(s1)
		r.sync(s2)
		out := pageable(1)
		r.d2h(out, a, s1)
		last[out[0]] = true
		r.expect(emu.Order)
		r.d.Close() // close early, since few drivers may be open at a time
	}
	if len(last) != 2 {
		t.Errorf("30 seeds end with %v, want 1 and 2", last)
	}
}

func TestElapsed(t *testing.T) {
	r := open(t, emu.Options{Mode: emu.Lazy})
	s := r.stream()
	start, end := r.event(), r.event()
	if _, err := r.EventElapsed(start, end); err == nil {
		t.Error("events that were never recorded have a time between them")
	}
	r.must(r.EventRecord(start, s))
	r.must(r.EventRecord(end, s))
	if _, err := r.EventElapsed(start, end); !errors.Is(err, cudart.ErrNotReady) {
		t.Errorf("got %v, want not ready", err)
	}
	r.must(r.EventSynchronize(end))
	if ms, err := r.EventElapsed(start, end); err != nil || ms < 0 {
		t.Errorf("got %v ms, %v", ms, err)
	}
	untimed, err := r.EventCreate(cudart.EventDisableTiming)
	r.must(err)
	r.must(r.EventRecord(untimed, s))
	r.sync(s)
	if _, err := r.EventElapsed(start, untimed); err == nil {
		t.Error("an event without timing has a time")
	}
	r.expect(emu.Argument, "without timing")
}

func TestPageableCopiesAreStaged(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := open(t, o)
		s := r.stream()
		a := r.malloc(4)
		src, dst := pageable(4), pageable(4)
		copy(src, []byte{1, 2, 3, 4})
		r.h2d(a, src, s)
		clear(src) // the copy has read the source before the call returned
		r.d2h(dst, a, s)
		if !bytes.Equal(dst, []byte{1, 2, 3, 4}) {
			t.Errorf("got %v", dst)
		}
		if n := r.d.PageableCopies(); n != 2 {
			t.Errorf("%d pageable copies were counted, want 2", n)
		}
		r.must(errors.Join(r.Free(a), r.StreamDestroy(s)))
		r.close()
	})
}

func TestManyThreadsWaitAtOnce(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := open(t, o)
		r.context() // creates one context for all goroutines
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				s, err1 := r.StreamCreate()
				e, err2 := r.EventCreate(cudart.EventBlockingSync)
				a, err3 := r.Malloc(64)
				err := errors.Join(err1, err2, err3)
				for i := range byte(10) {
					err = errors.Join(err, r.MemsetAsync(a, i, 64, s), r.EventRecord(e, s), r.EventSynchronize(e))
				}
				if err = errors.Join(err, r.Free(a), r.EventDestroy(e), r.StreamDestroy(s)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		r.close()
	})
}

// TestHundredsOfDrivers: a process can open any number of drivers one after the other. If it opens
// more at a time than there are slots, New waits until another is closed.
func TestHundredsOfDrivers(t *testing.T) {
	var all sync.WaitGroup
	for range 25 {
		all.Go(func() {
			for range 10 {
				d := emu.New(emu.Options{})
				c, err := cudart.New(d)
				if err != nil {
					t.Error(err)
					return
				}
				ctx, err := c.PrimaryContext(0)
				p, err2 := c.Malloc(ctx, 4)
				if err = errors.Join(err, err2, c.Free(ctx, p), c.ReleasePrimaryContext(0), d.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkEnqueue(b *testing.B) {
	d := emu.New(emu.Options{})
	c, err := cudart.New(d)
	if err != nil {
		b.Fatal(err)
	}
	ctx, err := c.PrimaryContext(0)
	if err != nil {
		b.Fatal(err)
	}
	s, _ := c.StreamCreate(ctx)
	p, _ := c.Malloc(ctx, 64)
	b.ResetTimer()
	for i := range b.N {
		if err := c.MemsetAsync(ctx, p, 1, 64, s); err != nil {
			b.Fatal(err)
		}
		if i%100 == 99 {
			if err := c.StreamSynchronize(ctx, s); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	c.StreamSynchronize(ctx, s)
	c.Free(ctx, p)
	c.StreamDestroy(ctx, s)
	c.ReleasePrimaryContext(0)
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
}
