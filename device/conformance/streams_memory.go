package conformance

import (
	"bytes"
	"errors"
	"reflect"
	"strings"

	"mt/base/accounts"
	"mt/device"
)

// address returns the address of b.
func address(b []byte) uintptr { return reflect.ValueOf(b).Pointer() }

func allocHost(t Tester, d device.Device, n int64) []byte {
	t.Helper()
	b, err := d.AllocHost(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// usage checks that Usage counts memory by purpose, in steps of device.Align.
func usage(t Tester, d streamRig) {
	was := d.Usage()
	a, err := d.Alloc(accounts.WeightSlots, 300) // counts as 512
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(accounts.GradientBuffers, 512)
	if err != nil {
		t.Fatal(err)
	}
	h := allocHost(t, d, 5000)
	for i, x := range h {
		if x != 0 {
			t.Fatalf("byte %d of host memory is %d", i, x)
		}
	}
	if a.Addr%device.Align != 0 || b.Addr%device.Align != 0 || address(h)%device.Align != 0 || a.Bytes != 300 || len(h) != 5000 {
		t.Error("an allocation is not aligned, or of the wrong size")
	}
	d.Free(a)
	want := was
	want.Total, want.PeakTotal = was.Total+512, was.Total+1024
	want.Now[accounts.GradientBuffers], want.Now[accounts.HostStaging] = 512, 5120
	want.Peak[accounts.WeightSlots], want.Peak[accounts.GradientBuffers], want.Peak[accounts.HostStaging] = 512, 512, 5120
	if u := d.Usage(); u != want {
		t.Errorf("usage %+v, want %+v", u, want)
	}
	d.Free(b)
	d.FreeHost(h)
	d.Free(device.Mem{})
	d.FreeHost(nil)
	if u := d.Usage(); u.Now != was.Now || u.Total != was.Total {
		t.Errorf("usage %+v after everything was freed, before it was %+v", u, was)
	}
}

// limit checks that the whole budget of device memory can be allocated, but no more. Host memory is
// not part of the budget.
func limit(t Tester, d streamRig) {
	was := d.Usage()
	all := (was.Limit - was.Total) &^ (device.Align - 1)
	refused := func(bytes int64) {
		t.Helper()
		used := d.Usage().Total
		_, err := d.Alloc(accounts.WeightSlots, bytes)
		var oom *device.OutOfMemory
		if want := (device.OutOfMemory{Purpose: accounts.WeightSlots, Requested: bytes, Used: used, Limit: was.Limit}); !errors.As(err, &oom) || *oom != want {
			t.Errorf("error %v, want %v", err, &want)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), d.Kind()+": ") || !strings.Contains(err.Error(), "weight slots wants")) {
			t.Errorf("error %v", err)
		}
	}
	refused(all + device.Align)
	m, err := d.Alloc(accounts.Batch, all)
	if err != nil {
		t.Fatal(err)
	}
	refused(1)
	d.FreeHost(allocHost(t, d, 512))
	d.Free(m)
	d.Free(Alloc(t, d, 512))
}

func badAllocations(t Tester, d streamRig) {
	for _, p := range []accounts.Purpose{accounts.HostStaging, accounts.NumPurposes} {
		if _, err := d.Alloc(p, 8); err == nil {
			t.Errorf("Alloc for %s: no error", p)
		}
	}
	if _, err := d.Alloc(accounts.Batch, -1); err == nil {
		t.Error("Alloc of -1 bytes: no error")
	}
	if _, err := d.AllocHost(-1); err == nil {
		t.Error("AllocHost of -1 bytes: no error")
	}
	if m, err := d.Alloc(accounts.Batch, 0); err != nil || m != (device.Mem{}) {
		t.Errorf("Alloc of nothing: %v, %v", m, err)
	}
	if b, err := d.AllocHost(0); err != nil || b != nil {
		t.Errorf("AllocHost of nothing: %v, %v", b, err)
	}
}

// misuse checks that calls which only a bug in the program can make, such as a second Free, panic.
func misuse(t Tester, d streamRig) {
	m, h := Alloc(t, d, 512), allocHost(t, d, 512)
	cases := map[string]func(){
		"free of a part":          func() { d.Free(m.Slice(256, 256)) },
		"free of host memory":     func() { d.Free(device.Mem{Addr: address(h), Bytes: 512}) },
		"free of what is Go's":    func() { d.FreeHost(make([]byte, 8)) },
		"free of a part, host":    func() { d.FreeHost(h[256:]) },
		"bind on a copying one":   func() { d.BindHost(h) },
		"slice of what is less":   func() { m.Slice(256, 512) },
		"slice of a small tensor": func() { m.Tensor(device.F32, 0, 128).Slice(1, 128) },
	}
	if d.Unified() {
		delete(cases, "bind on a copying one")
	}
	for name, f := range cases {
		if !Panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
	d.Free(m)
	if !Panics(func() { d.Free(m) }) {
		t.Error("a second free: no panic")
	}
}

// closing checks Device.Close. While streams are open it returns an error. Otherwise it frees
// everything, and the device cannot be used again.
func closing(t Tester, d streamRig) {
	s, err := d.NewStream("s")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "1 streams are still open") {
		t.Errorf("Close with a stream open: %v", err)
	}
	// The test releases nothing of the following, so Close has to: memory on both sides, an event
	// and a registration.
	Alloc(t, d, 100)
	allocHost(t, d, 100)
	Event(t, d)
	if err := d.Register(make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if u := d.Usage(); u.Now != [accounts.NumPurposes]int64{} || u.Total != 0 {
		t.Errorf("usage %+v after Close", u)
	}
	if _, err := d.NewStream("late"); err == nil {
		t.Error("NewStream after Close: no error")
	}
	if _, err := d.Alloc(accounts.Batch, 8); err == nil {
		t.Error("Alloc after Close: no error")
	}
	if _, err := d.AllocHost(8); err == nil {
		t.Error("AllocHost after Close: no error")
	}
}

// Peers tests copies between two devices that reach each other. Device a copies to b again and
// again, and events of both devices order the copies. Device `alone` must be one that a cannot
// reach. An invalid copy between devices must make the stream fail.
func Peers(t Tester, a, b, alone device.Device) {
	for range 2 { // a second call changes nothing
		for _, pair := range [][2]device.Device{{a, b}, {b, a}} {
			if ok, err := pair[0].Reach(pair[1]); !ok || err != nil {
				t.Fatalf("one device reaches the other: %t, %v", ok, err)
			}
		}
	}
	for what, other := range map[string]device.Device{"itself": a, "another kind": alone} {
		if ok, err := a.Reach(other); ok || err != nil {
			t.Errorf("a device reaches %s: %t, %v", what, ok, err)
		}
	}
	const n, rounds = 300_000, 6
	from, to := Stream(t, a, "from"), Stream(t, b, "to")
	there, idle := Event(t, a), Event(t, b)
	src, dst := Alloc(t, a, n), Alloc(t, b, n+1)
	to.Zero(dst)
	to.Record(idle)
	sent, got := make([][]byte, rounds), make([][]byte, rounds)
	for i := range rounds {
		sent[i], got[i] = bytes.Repeat([]byte{byte(i + 1), 7}, n/2), make([]byte, n+1)
		from.CopyH2D(src, sent[i])
		from.Wait(idle)
		from.CopyPeer(b, dst.Slice(0, n), src)
		from.Record(there)
		to.Wait(there)
		to.CopyD2H(got[i], dst)
		to.Record(idle)
	}
	for _, s := range []device.Stream{from, to} {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rounds {
		if !bytes.Equal(got[i][:n], sent[i]) || got[i][n] != 0 {
			t.Errorf("round %d: other bytes arrive", i)
		}
	}
	from.CopyPeer(b, device.Mem{}, device.Mem{}) // an empty copy
	if err := from.Sync(); err != nil {
		t.Error(err)
	}
	for want, copy := range map[string]func(s device.Stream){
		"CopyPeer: 3 bytes to 8 bytes": func(s device.Stream) { s.CopyPeer(b, dst.Slice(0, 8), src.Slice(0, 3)) },
		"CopyPeer: ":                   func(s device.Stream) { s.CopyPeer(alone, dst.Slice(0, 8), src.Slice(0, 8)) },
	} {
		s := Stream(t, a, "s")
		copy(s)
		if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "stream s: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
