package cuda

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cuda/kernels"
	"mt/internal/testkit"
)

// orders are ways in which the emulator orders the work of several streams: as early as possible,
// as late as possible, or by chance.
var orders = map[string]emu.Options{
	"eager":   {Mode: emu.Eager},
	"lazy":    {Mode: emu.Lazy},
	"random1": {Mode: emu.Random, Seed: 1},
	"random2": {Mode: emu.Random, Seed: 2},
}

// TestContract: the device passes all conformance tests of streams, events, memory and copies,
// whatever the order in which the emulator runs work.
func TestContract(t *testing.T) {
	for name, o := range orders {
		t.Run(name, func(t *testing.T) {
			conformance.Streams(t, func(t *testing.T) device.Device {
				d, _ := newDevice(t, o, Options{})
				d.usage.Limit = d.usage.Total + 64<<20
				return d
			}, hold)
		})
	}
}

// TestRegistration: copies of memory inside a registered range are not staged. Copies of other
// memory go through mt's staging buffers, and none is left to the driver to stage.
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
		testkit.NoError(t, s.Sync())
		return on(s).staging.pool != nil
	}
	testkit.NoError(t, d.Register(host))
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
				testkit.NoError(t, d.Register(b))
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

// TestElapsed: Elapsed panics until the GPU has completed both events, even if their recordings are
// enqueued. An event that was recorded and then closed counts as never recorded.
func TestElapsed(t *testing.T) {
	d, _ := newDevice(t, emu.Options{Mode: emu.Lazy}, Options{})
	s, a, b := newStream(t, d, "s"), newEvent(t, d), newEvent(t, d)
	s.Record(a)
	s.Zero(alloc(t, d, 4<<20))
	s.Record(b)
	if !panics(func() { b.Elapsed(a) }) {
		t.Error("of an event that is not complete: no panic")
	}
	testkit.NoError(t, s.Sync())
	a.Close()
	b.Close()
	if got := b.Elapsed(a); got != 0 {
		t.Errorf("of closed events: %v", got)
	}
}

// TestEventsAreReused: however long a run is, it creates only as many CUDA events as it uses at the
// same time.
func TestEventsAreReused(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s := newStream(t, d, "s")
	for range 50 {
		e := newEvent(t, d)
		s.Record(e)
		s.Wait(e)
		s.Record(e)
		s.Notify(func(error) {})
		testkit.NoError(t, s.Sync())
		e.Close()
	}
	testkit.NoError(t, s.Close())
	if n := len(d.allEvents); n > 52 { // at worst no notification was delivered before Close
		t.Errorf("%d CUDA events", n)
	}
	if len(d.events) != len(d.allEvents) {
		t.Errorf("%d of %d events are free", len(d.events), len(d.allEvents))
	}
}

func TestErrorsStick(t *testing.T) {
	fails := func() error { return errors.New("it does") }
	for _, c := range []struct {
		name, want string
		slow       bool
		run        func() error
	}{
		{"a call", "boom: it does", false, fails},
		{"a call of the worker", "boom: it does", true, fails},
		{"panic", "boom: panic: index", false, func() error { panic("index") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := newDevice(t, emu.Options{Mode: emu.Lazy}, Options{})
			boom := func(s device.Stream) { run(s, "boom", c.slow, c.run) }
			conformance.ErrorSticks(t, d, hold, c.want, boom)
			conformance.ErrorSticks(t, d, nil, c.want, func(s device.Stream) {
				boom(s)
				on(s).later.Wait()
			})
		})
	}
}

// TestLostDevice: if the device is lost, every stream fails with that error. No call waits forever.
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
				testkit.NoError(t, err)
				d, err := New(Options{CUDA: c})
				testkit.NoError(t, err)
				start := drv.Calls()
				s, err := d.NewStream("s")
				testkit.NoError(t, err)
				e, err := d.NewEvent()
				testkit.NoError(t, err)
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
			i := testkit.Must(calls(emu.Options{}))(t)
			if _, err := calls(emu.Options{LoseDeviceAt: i, LostCode: 719}); !errors.Is(err, cudart.ErrContextLost) || !strings.HasPrefix(err.Error(), "cuda: stream s: ") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestScratchIsGivenBack: when a stream is closed, the next stream gets its scratch memory, so the
// usage does not grow.
func TestScratchIsGivenBack(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	before := d.Usage().Total
	for range 4 {
		s := testkit.Must(d.NewStream("s"))(t)
		run(s, "scratch", false, func() error {
			l := &on(s).launcher
			l.Scratch(64)
			return l.err
		})
		testkit.NoError(t, errors.Join(s.Sync(), s.Close()))
	}
	if now := d.Usage().Total; now != before {
		t.Errorf("streams that are closed keep %d bytes", now-before)
	}
}

// TestSharedMemoryOfALaunch: a launch with more shared memory than its kernel declares fails before it reaches the
// driver.
func TestSharedMemoryOfALaunch(t *testing.T) {
	d, drv := newDevice(t, emu.Options{}, Options{})
	s := newStream(t, d, "s")
	before := calls(drv, "cuLaunchKernel")
	run(s, "too much", false, func() error {
		l := &launcher{stream: on(s)}
		one := kernels.Dim3{X: 1, Y: 1, Z: 1}
		l.Launch(&kernels.Kernel{Module: "attention_gradients_64", Name: "attention_marks", Shared: 16}, one, one, 17, l.Params())
		if n := calls(drv, "cuLaunchKernel"); l.err == nil || !strings.Contains(l.err.Error(), "attention_marks: 17 bytes of shared memory, it says at most 16") || n != before {
			t.Errorf("error %v, %d launches", l.err, n-before)
		}
		return nil
	})
}

// TestSharedMemoryOfGPUs: SharedBytes is the largest shared memory of a thread block that NVIDIA
// states for each compute capability. Unknown capabilities get the smallest of these values.
func TestSharedMemoryOfGPUs(t *testing.T) {
	for capability, want := range map[int]int{80: 163 << 10, 86: 99 << 10, 87: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10, 103: 227 << 10, 120: 99 << 10, 999: 99 << 10} {
		if got := (&launcher{stream: &stream{dev: &dev{capability: capability}}}).SharedBytes(); got != want {
			t.Errorf("capability %d: %d bytes, want %d", capability, got, want)
		}
	}
}

// TestNotifyWaits: when Notify calls its function, all earlier work is complete, in every order in
// which the emulator runs streams.
func TestNotifyWaits(t *testing.T) {
	for seed := range uint64(4) {
		d, _ := newDevice(t, emu.Options{Mode: emu.Random, Seed: seed}, Options{})
		s := newStream(t, d, "compute")
		host := testkit.Must(d.AllocHost(2048))(t)
		mem, told := alloc(t, d, 1024), make(chan byte)
		for i := range byte(5) {
			host[1023], host[2047] = i+1, 0
			s.CopyH2D(mem, host[:1024])
			s.CopyD2H(host[1024:], mem)
			s.Notify(func(error) { told <- host[2047] })
			if got := <-told; got != i+1 {
				t.Fatalf("seed %d: the copy %d had not arrived when that was told: %d", seed, i+1, got)
			}
		}
		d.FreeHost(host)
	}
}
