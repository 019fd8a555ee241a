package cuda

import (
	"errors"
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cpu"
	"mt/internal/testkit"
)

// several opens all o.Devices devices of one emulated driver.
func several(t *testing.T, o emu.Options) (drv *emu.Driver, out []device.Device) {
	t.Helper()
	drv, c := bind(t, o)
	for ordinal := range o.Devices {
		d := testkit.Must(New(Options{CUDA: c, Ordinal: ordinal}))(t)
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			checkEmpty(t, d)
		})
		out = append(out, d)
	}
	return drv, out
}

// TestPeers: two GPUs of one driver reach each other's memory, and copies between them have the
// right bytes. A GPU reaches neither itself nor a CPU device.
func TestPeers(t *testing.T) {
	for _, mode := range []emu.Mode{emu.Eager, emu.Random, emu.Lazy} {
		drv, d := several(t, emu.Options{Devices: 2, Mode: mode, Seed: 5})
		other := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
		defer other.Close()
		conformance.Peers(t, d[0], d[1], other)
		if faults := drv.Faults(); len(faults) > 0 {
			t.Error(faults)
		}
		if notes := d[0].(*dev).Notes(); len(notes) > 0 {
			t.Errorf("notes %q", notes)
		}
	}
}

// TestNoPeers: Reach returns false if there is no path between two GPUs, or if the path corrupts
// bytes. A later peer copy is then an error, and nothing is copied.
func TestNoPeers(t *testing.T) {
	for note, o := range map[string]emu.Options{"": {WithoutPeers: true}, "other bytes arrive": {SpoilPeers: true}} {
		o.Devices = 2
		drv, d := several(t, o)
		for range 2 {
			if ok, err := d[0].Reach(d[1]); ok || err != nil {
				t.Errorf("%+v: reached %t, %v", o, ok, err)
			}
		}
		notes := d[0].(*dev).Notes()
		if len(notes) != min(1, len(note)) || !strings.Contains(strings.Join(notes, ""), note) {
			t.Errorf("%+v: notes %q", o, notes)
		}
		s, a, b := conformance.Stream(t, d[0], "s"), conformance.Alloc(t, d[0], 8), conformance.Alloc(t, d[1], 8)
		if s.CopyPeer(d[1], b, a); s.Err() == nil || !strings.Contains(s.Err().Error(), "CopyPeer: device 0 has no access to device 1") {
			t.Errorf("%+v: a copy says %v", o, s.Err())
		}
		if faults := drv.Faults(); len(faults) > 0 {
			t.Error(faults)
		}
	}
}

// TestFailingPeers: each CUDA call of Reach and of a peer copy fails in turn. The error is reported
// or Reach returns false, and no resources stay allocated.
func TestFailingPeers(t *testing.T) {
	testkit.NotShort(t)
	try := func(o emu.Options) (drv *emu.Driver, before int, reached bool, err error) {
		o.Devices, o.DeviceMemory = 2, 2<<30
		drv = emu.New(o)
		c, err := cudart.New(drv)
		testkit.NoError(t, err)
		var d [2]device.Device
		for i := range d {
			if d[i], err = New(Options{CUDA: c, Ordinal: i}); err != nil {
				t.Fatal(err)
			}
		}
		before = drv.Calls()
		reached, err = d[0].Reach(d[1])
		for i := range d {
			u := d[i].Usage().Now
			u[accounts.Context] = 0
			if u != [accounts.NumPurposes]int64{} {
				t.Errorf("call %d: device %d still holds %v", o.FailCall, i, u)
			}
			err = errors.Join(err, d[i].Close())
		}
		return drv, before, reached, err
	}
	drv, first, reached, err := try(emu.Options{})
	if !reached || err != nil {
		t.Fatal(reached, err)
	}
	last := drv.Calls()
	testkit.NoError(t, drv.Close())
	stride := 1
	if testkit.Race {
		stride = 11 // slow
	}
	for call := first + 1; call <= last; call += stride {
		drv, _, reached, err := try(emu.Options{FailCall: call})
		var failed *cudart.Error
		name := drv.CallName(call)
		if !reached && err == nil || err != nil && (!errors.As(err, &failed) || failed.Op != name) {
			t.Errorf("call %d (%s): reached %t, %v", call, name, reached, err)
		}
		err = drv.Close()
		if name == "cuCtxSetCurrent" { // later releases then run on a thread that may have no context
			continue
		}
		if err != nil {
			t.Errorf("call %d (%s): %v", call, name, err)
		}
	}
}
