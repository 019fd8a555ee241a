package emu_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/internal/testkit"
)

// rig is an emulated driver with cudart bound to it. Its methods act on one device.
type rig struct {
	*cudart.CUDA
	t       *testing.T
	d       *emu.Driver
	ordinal int
	ctx     cudart.Context // of the device
	own     bool           // the rig must release ctx
}

func open(t *testing.T, o emu.Options) *rig {
	t.Helper()
	d := emu.New(o)
	t.Cleanup(func() { d.Close() }) // a test that checks the error has closed it before
	c := testkit.Must(cudart.New(d))(t)
	return &rig{CUDA: c, t: t, d: d}
}

// context returns the primary context of the rig's device. On first use it retains the context,
// unless the test has done so. 0: the context cannot be retained.
func (r *rig) context() cudart.Context {
	if r.ctx == 0 {
		ctx, err := r.PrimaryContext(r.ordinal)
		r.ctx, r.own = ctx, err == nil
	}
	return r.ctx
}

// end releases the context if the rig has retained it.
func (r *rig) end() {
	r.t.Helper()
	if r.own {
		r.must(r.ReleasePrimaryContext(r.ordinal))
		r.ctx, r.own = 0, false
	}
}

// close closes the driver and fails the test if Close reports an error.
func (r *rig) close() {
	r.t.Helper()
	r.end()
	if err := r.d.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) malloc(n int64) cudart.DevicePtr {
	r.t.Helper()
	p, err := r.Malloc(n)
	r.must(err)
	return p
}

func (r *rig) host(n int64) []byte {
	r.t.Helper()
	b, err := r.HostAlloc(n)
	r.must(err)
	return b
}

func (r *rig) stream() cudart.Stream {
	r.t.Helper()
	s, err := r.StreamCreate()
	r.must(err)
	return s
}

func (r *rig) event() cudart.Event {
	r.t.Helper()
	e, err := r.EventCreate(cudart.EventDefault)
	r.must(err)
	return e
}

func (r *rig) h2d(dst cudart.DevicePtr, src []byte, s cudart.Stream) {
	r.t.Helper()
	r.must(r.MemcpyAsync(uintptr(dst), addr(src), int64(len(src)), cudart.HostToDevice, s))
}

func (r *rig) d2h(dst []byte, src cudart.DevicePtr, s cudart.Stream) {
	r.t.Helper()
	r.must(r.MemcpyAsync(addr(dst), uintptr(src), int64(len(dst)), cudart.DeviceToHost, s))
}

func (r *rig) d2d(dst, src cudart.DevicePtr, n int64, s cudart.Stream) {
	r.t.Helper()
	r.must(r.MemcpyAsync(uintptr(dst), uintptr(src), n, cudart.DeviceToDevice, s))
}

func (r *rig) sync(s cudart.Stream) {
	r.t.Helper()
	r.must(r.StreamSynchronize(s))
}

// pageable returns n bytes of the Go heap, which is not pinned and, unlike a stack, does not move.
func pageable(n int) []byte {
	kept = make([]byte, n)
	return kept
}

var kept []byte

func addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// expect fails the test unless the driver has recorded exactly one fault, of this kind and with all
// these words.
func (r *rig) expect(k emu.Kind, words ...string) {
	r.t.Helper()
	faults := r.d.Faults()
	if len(faults) != 1 {
		r.t.Fatalf("%d faults, want one of kind %s: %v", len(faults), k, faults)
	}
	var f *emu.Fault
	if !errors.As(faults[0], &f) || f.Kind != k {
		r.t.Fatalf("got %v, want a fault of kind %s", faults[0], k)
	}
	if i := slices.IndexFunc(words, func(w string) bool { return !strings.Contains(f.What, w) }); i >= 0 {
		r.t.Errorf("%q does not say %q", f.What, words[i])
	}
}

var modes = []struct {
	name string
	opt  emu.Options
}{
	{"eager", emu.Options{Mode: emu.Eager}},
	{"random", emu.Options{Mode: emu.Random, Seed: 7}},
	{"lazy", emu.Options{Mode: emu.Lazy}},
}

// inModes runs a test in each mode of the emulator (Eager, Random, Lazy).
func inModes(t *testing.T, f func(t *testing.T, o emu.Options)) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { f(t, m.opt) })
	}
}
