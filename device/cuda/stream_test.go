package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
)

// orders are the ways in which the emulator runs streams.
var orders = map[string]emu.Options{
	"eager":   {Mode: emu.Eager},
	"lazy":    {Mode: emu.Lazy},
	"random1": {Mode: emu.Random, Seed: 1},
	"random2": {Mode: emu.Random, Seed: 2},
}

// inEveryOrder runs a test on devices that differ in when work runs.
func inEveryOrder(t *testing.T, f func(t *testing.T, d *dev)) {
	for name, o := range orders {
		t.Run(name, func(t *testing.T) {
			d, _ := newDevice(t, o, Options{})
			f(t, d)
		})
	}
}

// Copies from and to memory of every kind are right, in every order.
func TestCopies(t *testing.T) {
	const n = 3<<20 + 5 // several pieces of staging memory
	inEveryOrder(t, func(t *testing.T, d *dev) {
		s := newStream(t, d, "s")
		pinned, err := d.AllocHost(2*n + 1)
		if err != nil {
			t.Fatal(err)
		}
		defer d.FreeHost(pinned)
		for kind, host := range map[string][]byte{"pinned": pinned, "Go's": make([]byte, 2*n+1)} {
			a, b := alloc(t, d, n), alloc(t, d, n)
			src, got := host[1:n+1], host[n+1:]
			copy(src, bytes.Repeat([]byte{1, 2, 3}, n))
			s.CopyH2D(a, src)
			s.CopyD2D(b, a)
			s.Zero(b.Slice(1, n-2))
			s.CopyD2H(got, b)
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
			want := make([]byte, n)
			want[0], want[n-1] = src[0], src[n-1]
			if !bytes.Equal(got, want) {
				t.Errorf("%s memory: wrong bytes after H2D, D2D, Zero, D2H", kind)
			}
			d.Free(a)
			d.Free(b)
		}
		s.CopyH2D(device.Mem{}, nil)
		s.CopyD2H(nil, device.Mem{})
		s.CopyD2D(device.Mem{}, device.Mem{})
		s.Zero(device.Mem{})
		if err := s.Sync(); err != nil {
			t.Errorf("copies of nothing: %v", err)
		}
	})
}

// What lies inside a registered range is not staged, and what is staged is said
// once, with the system's reason.
func TestRegistration(t *testing.T) {
	d, drv := newDevice(t, emu.Options{}, Options{})
	host := make([]byte, 1<<20)
	m := alloc(t, d, 1000)
	copies := func() bool {
		t.Helper()
		s := newStream(t, d, "s")
		defer s.Close()
		s.CopyH2D(m, host[5000:6000])
		s.CopyD2H(host[5000:6000], m)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		return on(s).staging.pool != nil
	}
	if err := d.Register(host); err != nil {
		t.Fatal(err)
	}
	if copies() {
		t.Error("a copy inside a registered range was staged")
	}
	d.Unregister(host)
	d.Unregister(host)
	d.Unregister(nil)
	if !copies() {
		t.Error("a copy of unregistered memory was not staged")
	}
	if n := drv.PageableCopies(); n != 0 {
		t.Errorf("%d copies were left to the driver to stage", n)
	}
	if len(d.Notes()) != 0 {
		t.Errorf("notes %q", d.Notes())
	}
}

func TestRegistrationRefused(t *testing.T) {
	for name, o := range map[string]emu.Options{
		"limit of locked memory": {RegisterLimit: 64 << 10},
		"not supported":          {RefuseRegister: 801},
		"operating system":       {RefuseRegister: 304},
	} {
		t.Run(name, func(t *testing.T) {
			d, drv := newDevice(t, o, Options{})
			s := newStream(t, d, "s")
			host := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 1<<18)
			got := make([]byte, len(host))
			for _, b := range [][]byte{host, got} {
				if err := d.Register(b); err != nil {
					t.Fatal(err)
				}
				defer d.Unregister(b)
			}
			m := alloc(t, d, int64(len(host)))
			s.CopyH2D(m, host)
			s.CopyD2H(got, m)
			if err := s.Sync(); err != nil || !bytes.Equal(got, host) {
				t.Errorf("wrong bytes (%v)", err)
			}
			if notes := d.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "cudaHostRegister") || !strings.Contains(notes[0], "ulimit -l") {
				t.Errorf("notes %q", d.Notes())
			}
			if n := drv.PageableCopies(); n != 0 {
				t.Errorf("%d copies were left to the driver to stage", n)
			}
		})
	}
}

// Staged copies and what is enqueued around them keep their order on the stream
// and between streams, also when several streams stage.
func TestStagingKeepsOrder(t *testing.T) {
	inEveryOrder(t, func(t *testing.T, d *dev) {
		up, down := newStream(t, d, "up"), newStream(t, d, "down")
		there, back := newEvent(t, d), newEvent(t, d)
		const n, rounds = 300_000, 8
		m := alloc(t, d, n)
		src, got := make([][]byte, rounds), make([][]byte, rounds)
		var told []int
		for i := range rounds {
			src[i], got[i] = bytes.Repeat([]byte{byte(i + 1)}, n), make([]byte, n)
			up.Wait(back)
			up.CopyH2D(m, src[i])
			up.Record(there)
			down.Wait(there)
			down.CopyD2H(got[i], m)
			down.Record(back)
			down.Notify(func(err error) {
				if told = append(told, i); err != nil || got[i][n-1] != byte(i+1) {
					t.Errorf("notification %d: %v, last byte %d", i, err, got[i][n-1])
				}
			})
		}
		for _, s := range []device.Stream{up, down} {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range rounds {
			if !bytes.Equal(got[i], src[i]) {
				t.Errorf("round %d: wrong bytes", i)
			}
		}
		if fmt.Sprint(told) != "[0 1 2 3 4 5 6 7]" {
			t.Errorf("notifications came as %v", told)
		}
	})
}

func TestWaitRefersToTheLastRecordBefore(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s, first, late := newStream(t, d, "s"), newStream(t, d, "first"), newStream(t, d, "late")
	e := newEvent(t, d)
	s.Wait(e) // never recorded: complete
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	openFirst := hold(first)
	first.Record(e)
	order := make(chan string, 3)
	s.Wait(e)
	s.Notify(func(error) { order <- "after the gate" })
	// A later record does not concern the wait above: it would never end.
	openLate := hold(late)
	late.Record(e)
	order <- "gate opens"
	openFirst()
	if a, b := <-order, <-order; a != "gate opens" || b != "after the gate" {
		t.Errorf("order %q, %q", a, b)
	}
	s.Wait(e) // this one waits for the later record
	s.Notify(func(error) { order <- "after the block" })
	order <- "block ends"
	openLate()
	if a, b := <-order, <-order; a != "block ends" || b != "after the block" {
		t.Errorf("order %q, %q", a, b)
	}
}

// A wait that the worker has yet to enqueue is for the record it was called
// after, although the event has been recorded again since.
func TestLateWaitsKeepTheirRecord(t *testing.T) {
	inEveryOrder(t, func(t *testing.T, d *dev) {
		s, other := newStream(t, d, "s"), newStream(t, d, "other")
		e := newEvent(t, d)
		other.Record(e)
		open := hold(s)
		s.Wait(e)
		// The second record comes after s: the wait above would wait for itself.
		done := newEvent(t, d)
		s.Record(done)
		other.Wait(done)
		other.Record(e)
		open()
		for _, st := range []device.Stream{s, other} {
			if err := st.Sync(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestElapsed(t *testing.T) {
	d, _ := newDevice(t, emu.Options{Mode: emu.Lazy}, Options{})
	s, a, b := newStream(t, d, "s"), newEvent(t, d), newEvent(t, d)
	if got := b.Elapsed(a); got != 0 {
		t.Errorf("between events never recorded: %v", got)
	}
	s.Record(a)
	if got := b.Elapsed(a); got != 0 {
		t.Errorf("with one never recorded: %v", got)
	}
	m := alloc(t, d, 4<<20)
	s.Zero(m)
	s.Record(b)
	if !panics(func() { b.Elapsed(a) }) {
		t.Error("of an event that is not complete: no panic")
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := b.Elapsed(a); got <= 0 {
		t.Errorf("Elapsed around work is %v", got)
	}
	a.Close()
	b.Close()
	if got := b.Elapsed(a); got != 0 {
		t.Errorf("of closed events: %v", got)
	}
}

// CUDA events go round: a long run makes no more of them than it has in use.
func TestEventsAreReused(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s := newStream(t, d, "s")
	for range 50 {
		e := newEvent(t, d)
		s.Record(e)
		s.Wait(e)
		s.Record(e)
		s.Notify(func(error) {})
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		e.Close()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(d.allEvents); n > 52 { // at worst no notification was delivered before Close
		t.Errorf("%d CUDA events", n)
	}
	if len(d.events) != len(d.allEvents) {
		t.Errorf("%d of %d events are free", len(d.events), len(d.allEvents))
	}
}

func TestNotifyKeepsOrder(t *testing.T) {
	inEveryOrder(t, func(t *testing.T, d *dev) {
		s := newStream(t, d, "s")
		m := alloc(t, d, 1<<10)
		var got []int
		for i := range 200 {
			s.Zero(m)
			s.Notify(func(error) { got = append(got, i) })
		}
		if err := s.Close(); err != nil { // waits for them
			t.Fatal(err)
		}
		for i, v := range got {
			if i != v {
				t.Fatalf("notification %d came as number %d", v, i)
			}
		}
		if len(got) != 200 {
			t.Fatalf("%d notifications, want 200", len(got))
		}
	})
}

// After a failure work is dropped, and everything else goes on.
func TestErrorsStick(t *testing.T) {
	cases := []struct {
		name, want string
		fail       func(d device.Device, s device.Stream)
	}{
		{"a call", "cuda: stream s: boom: it does", func(_ device.Device, s device.Stream) {
			on(s).do("boom", nil, command{run: func() error { return errors.New("it does") }})
		}},
		{"a call of the worker", "cuda: stream s: boom: it does", func(_ device.Device, s device.Stream) {
			on(s).do("boom", nil, command{slow: true, run: func() error { return errors.New("it does") }})
			on(s).later.wait()
		}},
		{"panic", "cuda: stream s: boom: panic: index", func(_ device.Device, s device.Stream) {
			on(s).do("boom", nil, command{run: func() error { panic("index") }})
		}},
		{"sizes", "cuda: stream s: CopyH2D: 1 bytes to 0 bytes", func(_ device.Device, s device.Stream) {
			s.CopyH2D(device.Mem{}, []byte{1})
		}},
		{"operands", "cuda: stream s: MatMul: A holds 0 elements, want 4", func(d device.Device, s device.Stream) {
			d.Ops().MatMul(s, device.MatMul{M: 2, N: 2, K: 2})
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d, _ := newDevice(t, emu.Options{Mode: emu.Lazy}, Options{})
			s, e := newStream(t, d, "s"), newEvent(t, d)
			m, got := alloc(t, d, 1), []byte{9}
			s.CopyH2D(m, []byte{7})
			c.fail(d, s)
			s.CopyH2D(m, []byte{8})
			s.CopyD2H(got, m)
			s.Record(e)
			told := make(chan error, 1)
			s.Notify(func(err error) { told <- err })
			other := newStream(t, d, "other")
			other.Wait(e) // completes all the same
			before := make([]byte, 1)
			other.CopyD2H(before, m)
			if err := other.Sync(); err != nil {
				t.Error(err)
			}
			for _, err := range []error{<-told, s.Sync(), s.Err(), s.Close()} {
				if err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
			}
			if before[0] != 7 || got[0] != 9 {
				t.Errorf("memory holds %d, want 7; the copy after the failure gave %d", before[0], got[0])
			}
		})
	}
}

func TestClosedStream(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s, e := newStream(t, d, "s"), newEvent(t, d)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Zero(device.Mem{})
	s.Record(e)
	other := newStream(t, d, "other")
	other.Wait(e)
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	for _, err := range []error{<-told, s.Sync(), s.Close()} {
		if err == nil || !strings.Contains(err.Error(), "the stream is closed") {
			t.Errorf("error %v", err)
		}
	}
	if err := other.Sync(); err != nil {
		t.Error(err)
	}
}

// A device that is lost fails every stream, with the loss, and nothing hangs.
func TestLostDevice(t *testing.T) {
	for _, at := range []string{"cudaMemcpyAsync", "cudaEventSynchronize", "cudaStreamSynchronize", "cudaEventRecord"} {
		t.Run(at, func(t *testing.T) {
			calls := func(o emu.Options) (int, error) {
				drv := emu.New(o)
				defer func() {
					if faults := drv.Faults(); len(faults) > 0 {
						t.Error(faults)
					}
					_ = drv.Close() // a lost device gives nothing back
				}()
				c, err := cudart.New(drv)
				if err != nil {
					t.Fatal(err)
				}
				d, err := New(Options{CUDA: c})
				if err != nil {
					t.Fatal(err)
				}
				start := drv.Calls()
				s, err := d.NewStream("s")
				if err != nil {
					t.Fatal(err)
				}
				e, err := d.NewEvent()
				if err != nil {
					t.Fatal(err)
				}
				m := alloc(t, d, 1<<20)
				told := make(chan error, 1)
				s.CopyH2D(m, make([]byte, 1<<20))
				s.Record(e)
				s.Wait(e)
				s.Notify(func(err error) { told <- err })
				err = s.Sync()
				if early := <-told; early != nil && err == nil {
					err = s.Err()
				}
				if closed := s.Close(); err == nil {
					err = closed
				}
				_ = d.Close() // fails as everything does
				checkEmpty(t, d)
				for i := start + 1; ; i++ {
					if name := drv.CallName(i); name == at || name == "" {
						return i, err
					}
				}
			}
			i, err := calls(emu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := calls(emu.Options{LoseDeviceAt: i, LostCode: 719}); !errors.Is(err, cudart.ErrContextLost) || !strings.HasPrefix(err.Error(), "cuda: stream s: ") {
				t.Errorf("error %v", err)
			}
		})
	}
}
