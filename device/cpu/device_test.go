package cpu

import (
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/internal/testkit"
)

// TestOutOfMemoryOfTheSystem: if the operating system has too little memory, Alloc returns an
// error, even without a memory limit.
func TestOutOfMemoryOfTheSystem(t *testing.T) {
	if raceEnabled {
		t.Skip("memory is the Go heap's, which cannot say no")
	}
	d := newDevice(t, Options{})
	_, err := d.Alloc(accounts.Batch, 1<<50)
	if want := "cpu: out of device memory: batch wants 1.0 PiB, 0 B are in use (see device_memory, pipeline and recompute)"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Alloc of a petabyte: %v, want %s", err, want)
	}
}

func TestDeviceMemoryIsNotTheHosts(t *testing.T) {
	d := newDevice(t, Options{})
	m := alloc(t, d, 512)
	if !panics(func() { d.FreeHost(memory(m)) }) {
		t.Error("device memory freed as the host's: no panic")
	}
}

func TestUnified(t *testing.T) {
	d := newDevice(t, Options{Unified: true})
	h := testkit.Must(d.AllocHost(64))(t)
	m := d.BindHost(h)
	if !d.Unified() || m.Addr != address(h) || m.Bytes != 64 || d.BindHost(nil) != (device.Mem{}) {
		t.Errorf("BindHost gives %v for %#x", m, address(h))
	}
	s := newStream(t, d, "s")
	h[3] = 9
	s.CopyH2D(m, h) // in place, so there is nothing to copy
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
	d := testkit.Must(New(Options{Threads: 3}))(t)
	if d.Kind() != "cpu" || !strings.HasPrefix(d.Name(), "cpu (3 threads, ") || d.Unified() {
		t.Errorf("kind %q, name %q, unified %v", d.Kind(), d.Name(), d.Unified())
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
