package cpu

import (
	"strings"
	"testing"

	"mt/device"
)

func TestUsage(t *testing.T) {
	d := newDevice(t, Options{MemoryLimit: 1024})
	a, err := d.Alloc(device.ForWeights, 300) // counts as 512
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(device.ForGradients, 512)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(device.ForBatch, 1); err == nil || !strings.Contains(err.Error(), "batch wants") {
		t.Errorf("over the limit: %v", err)
	}
	h, err := d.AllocHost(5000) // has no limit
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range h {
		if x != 0 {
			t.Fatalf("byte %d of host memory is %d", i, x)
		}
	}
	if a.Addr%device.Align != 0 || b.Addr%device.Align != 0 || address(h)%device.Align != 0 || len(h) != 5000 {
		t.Error("an allocation is not aligned, or of the wrong size")
	}
	d.Free(a)
	u := d.Usage()
	want := device.Usage{Total: 512, PeakTotal: 1024, Limit: 1024}
	want.Now[device.ForGradients], want.Now[device.ForHostStaging] = 512, 5120
	want.Peak[device.ForWeights], want.Peak[device.ForGradients], want.Peak[device.ForHostStaging] = 512, 512, 5120
	if u != want {
		t.Errorf("usage %+v, want %+v", u, want)
	}
	d.Free(b)
	d.FreeHost(h)
	d.Free(device.Mem{})
	d.FreeHost(nil)
	if u := d.Usage(); u.Now != [device.NumPurposes]int64{} || u.Total != 0 {
		t.Errorf("usage %+v after everything was freed", u)
	}
}

func TestBadAllocations(t *testing.T) {
	d := newDevice(t, Options{})
	for _, p := range []device.Purpose{device.ForHostStaging, device.NumPurposes} {
		if _, err := d.Alloc(p, 8); err == nil {
			t.Errorf("Alloc for %s: no error", p)
		}
	}
	if _, err := d.Alloc(device.ForBatch, -1); err == nil {
		t.Error("Alloc of -1 bytes: no error")
	}
	if _, err := d.AllocHost(-1); err == nil {
		t.Error("AllocHost of -1 bytes: no error")
	}
	if m, err := d.Alloc(device.ForBatch, 0); err != nil || m != (device.Mem{}) {
		t.Errorf("Alloc of nothing: %v, %v", m, err)
	}
	if raceEnabled {
		return // memory is the Go heap's, which cannot say no
	}
	if _, err := d.Alloc(device.ForBatch, 1<<50); err == nil || !strings.Contains(err.Error(), "out of device memory") {
		t.Errorf("Alloc of a petabyte: %v", err)
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return
}

func TestMisusePanics(t *testing.T) {
	d := newDevice(t, Options{})
	m := alloc(t, d, 512)
	h, err := d.AllocHost(512)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(){
		"free of a part":           func() { d.Free(m.Slice(256, 256)) },
		"free of host memory":      func() { d.Free(device.Mem{Addr: address(h), Bytes: 512}) },
		"free of memory as host's": func() { d.FreeHost(memory(m)) },
		"bind on a copying device": func() { d.BindHost(h) },
	}
	for name, f := range cases {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
	d.Free(m)
	if !panics(func() { d.Free(m) }) {
		t.Error("a second free: no panic")
	}
}

func TestUnified(t *testing.T) {
	d := newDevice(t, Options{Unified: true})
	h, err := d.AllocHost(64)
	if err != nil {
		t.Fatal(err)
	}
	m := d.BindHost(h)
	if !d.Unified() || m.Addr != address(h) || m.Bytes != 64 || d.BindHost(nil) != (device.Mem{}) {
		t.Errorf("BindHost gives %v for %#x", m, address(h))
	}
	s := newStream(t, d, "s")
	h[3] = 9
	s.CopyH2D(m, h) // in place: nothing to do
	s.Zero(m.Slice(0, 2))
	if err := s.Sync(); err != nil || h[3] != 9 {
		t.Errorf("h[3] is %d (%v)", h[3], err)
	}
}

func TestNewAndClose(t *testing.T) {
	for _, o := range []Options{{Threads: -1}, {MemoryLimit: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v): no error", o)
		}
	}
	d, err := New(Options{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	if d.Kind() != "cpu" || !strings.HasPrefix(d.Name(), "cpu (3 threads, ") || d.Unified() {
		t.Errorf("kind %q, name %q, unified %v", d.Kind(), d.Name(), d.Unified())
	}
	s, err := d.NewStream("s")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "1 streams are still open") {
		t.Errorf("Close with a stream open: %v", err)
	}
	alloc(t, d, 100) // left to Close
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if u := d.Usage(); u.Total != 0 {
		t.Errorf("%d bytes in use after Close", u.Total)
	}
	if _, err := d.NewStream("late"); err == nil {
		t.Error("NewStream after Close: no error")
	}
	if _, err := d.Alloc(device.ForBatch, 8); err == nil {
		t.Error("Alloc after Close: no error")
	}
}
