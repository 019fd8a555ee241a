package emu_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/cudart/emu/ptx"
)

// Values of C enumerations that the emulator supports although mt never passes them.
const (
	attrPageableAccess         cudart.DeviceAttr = 88
	attrMaxSharedPerBlockOptin cudart.DeviceAttr = 97
	hostToHost                 cudart.MemcpyKind = 0
	anyToAny                   cudart.MemcpyKind = 4 // the addresses determine the direction
)

func TestDeviceDescribesItself(t *testing.T) {
	for _, c := range []struct{ capability, optIn int }{{80, 163 << 10}, {89, 99 << 10}, {90, 227 << 10}, {120, 99 << 10}} {
		r := open(t, emu.Options{ComputeCapability: c.capability, Name: "GPU"})
		if n, err := r.DeviceCount(); err != nil || n != 1 {
			t.Errorf("%d devices, %v", n, err)
		}
		for attr, want := range map[cudart.DeviceAttr]int{cudart.AttrComputeMajor: c.capability / 10, cudart.AttrComputeMinor: c.capability % 10,
			attrMaxSharedPerBlockOptin: c.optIn, attrPageableAccess: 0} {
			if got, err := r.DeviceAttribute(attr, 0); err != nil || got != want {
				t.Errorf("attribute %d is %d, %v, want %d", attr, got, err, want)
			}
		}
		if _, err := r.DeviceAttribute(9999, 0); err == nil {
			t.Error("an attribute that is none has a value")
		}
		if _, err := r.DeviceAttribute(1, 1); err == nil {
			t.Error("a device that is none has attributes")
		}
		if name, err := r.DeviceName(0); err != nil || name != "GPU" {
			t.Errorf("named %q, %v", name, err)
		}
		r.close()
	}
}

func TestPTXVersionOfDrivers(t *testing.T) {
	for driver, version := range map[int]string{11080: "7.8", 12000: "8.0", 12050: "8.5", 12060: "8.5", 12080: "8.7", 12090: "8.8", 13000: "9.0"} {
		r := open(t, emu.Options{DriverVersion: driver})
		ctx, err := r.PrimaryContext(0)
		r.must(err)
		load := func(v string) error {
			m, err := r.ModuleLoad(ctx, []byte(strings.Replace(tinyPTX, ".version 8.0", ".version "+v, 1)))
			if err == nil {
				r.must(r.ModuleUnload(ctx, m))
			}
			return err
		}
		if err := load("9.9"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("current version is '%s'", version)) {
			t.Errorf("driver %d: %v, want that %s is current", driver, err, version)
		}
		if err := load(version); err != nil {
			t.Errorf("driver %d: %v", driver, err)
		}
		r.must(r.ReleasePrimaryContext(0))
		r.close()
	}
}

// TestFaultsOfKernelsCarryTheInterpretersError: if the PTX interpreter stops a kernel, the recorded
// fault wraps the interpreter's error, which names the line, the block and the thread.
func TestFaultsOfKernelsCarryTheInterpretersError(t *testing.T) {
	r := openKernels(t, emu.Options{})
	r.must(r.launch("store", 1, 0, r.s, r.params(128)))
	r.StreamSynchronize(r.s)
	var e *ptx.Error
	if f := r.d.Faults(); len(f) != 1 || !errors.As(f[0], &e) || e.Kernel != "store" || e.Line != 17 {
		t.Errorf("got %v", f)
	}
}

// TestDefaultStream: stream 0 works like any other, and the addresses can determine the direction of a copy.
func TestDefaultStream(t *testing.T) {
	r := open(t, emu.Options{Mode: emu.Lazy})
	a, in, out := r.malloc(8), r.host(8), r.host(8)
	copy(in, "abcdefgh")
	r.must(r.MemcpyAsync(uintptr(a), addr(in), 8, anyToAny, 0))
	r.must(r.MemcpyAsync(addr(out), uintptr(a), 8, anyToAny, 0))
	r.must(r.MemcpyAsync(addr(in), addr(out), 8, hostToHost, 0))
	r.must(r.StreamSynchronize(0))
	if string(out) != "abcdefgh" {
		t.Errorf("got %q", out)
	}
	r.must(errors.Join(r.Free(a), r.FreeHost(in), r.FreeHost(out)))
	r.close()
}

// TestFewFaultsAreKept: the driver keeps the first 100 faults and counts the rest, so a mistake in
// a loop does not fill memory.
func TestFewFaultsAreKept(t *testing.T) {
	r := open(t, emu.Options{})
	for range 250 {
		if r.Free(12345) == nil {
			t.Fatal("no memory was freed")
		}
	}
	f := r.d.Faults()
	if len(f) != 101 || f[100].Error() != "emu: and 150 faults more" {
		t.Errorf("%d faults, the last %v", len(f), f[len(f)-1])
	}
}
