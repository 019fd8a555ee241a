package emu_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/internal/testkit"
)

// TestPlant: each form of the text sets the right options. Any other text is an error that lists
// the valid forms.
func TestPlant(t *testing.T) {
	for text, want := range map[string]emu.Options{
		"":                 {},
		"hang":             {HangAt: emu.Launch{N: 1}},
		"hang:store":       {HangAt: emu.Launch{Kernel: "store", N: 1}},
		"fault::3":         {CrashAt: emu.Launch{N: 3}},
		"fault:store:3":    {CrashAt: emu.Launch{Kernel: "store", N: 3}},
		"oom":              {FullAt: 1},
		"oom:4":            {FullAt: 4},
		"oom:64MiB":        {DeviceMemory: 64 << 20},
		"oom:64 MiB":       {DeviceMemory: 64 << 20},
		"missing:cudart":   {WithoutRuntime: true},
		"missing:cublasLt": {WithoutBlasLt: true},
		"missing:nvml":     {WithoutML: true},
	} {
		var got emu.Options
		if err := got.Plant(text); err != nil || got.HangAt != want.HangAt || got.CrashAt != want.CrashAt || got.FullAt != want.FullAt || got.DeviceMemory != want.DeviceMemory ||
			got.WithoutRuntime != want.WithoutRuntime || got.WithoutBlasLt != want.WithoutBlasLt || got.WithoutML != want.WithoutML {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"flood": `no kind "flood"`, ":": `no kind ""`, "hang:store:0": `"0" is no number of a launch`, "fault:store:x": `"x" is no number`, "hang:a:1:2": `"1:2"`,
		"oom:": `"" is no number of an allocation`, "oom:0": "no number", "oom:-1MiB": "no size", "oom:4GiB": "no size", "missing": `no library ""`, "missing:libc": `no library "libc"`,
	} {
		err := new(emu.Options).Plant(text)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, which does not say %s", text, err, says)
			continue
		}
		for _, kind := range []string{"hang", "fault", "oom", "missing"} {
			if !strings.Contains(err.Error(), kind) {
				t.Errorf("%q: %v does not name the kind %s", text, err, kind)
			}
		}
	}
}

// planted opens an emulated driver with the failure that text names.
func planted(t *testing.T, o emu.Options, text string) *rig {
	t.Helper()
	testkit.NoError(t, o.Plant(text))
	return open(t, o)
}

// TestCrash: the launch that "fault:" selects loses the context, and the core dump names its
// kernel. It does not count as a mistake of the program.
func TestCrash(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		o.CoreDump = filepath.Join(t.TempDir(), "a.cudacore")
		r := planted(t, o, "fault:sto")
		if err := program(r); !errors.Is(err, cudart.ErrContextLost) || !strings.Contains(err.Error(), "700") && !strings.Contains(err.Error(), "illegal") {
			t.Errorf("%v", err)
		}
		if dump, err := os.ReadFile(o.CoreDump); !strings.Contains(string(dump), "kernel store\n") {
			t.Errorf("core dump %q, %v", dump, err)
		}
		r.close()
		for _, elsewhere := range []string{"fault:store:2", "fault:load"} {
			r = planted(t, o, elsewhere)
			if err := program(r); err != nil {
				t.Errorf("%s: %v", elsewhere, err)
			}
			r.close()
		}
	})
}

// TestHangAt: the launch that "hang:" selects hangs; the one before it completes.
func TestHangAt(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := planted(t, o, "hang:store:2")
		m, err := r.ModuleLoad(r.context(), []byte(tinyPTX))
		r.must(err)
		f, err := r.ModuleFunction(r.context(), m, "store")
		r.must(err)
		a, s, other, one := r.malloc(256), r.stream(), r.stream(), [3]uint32{1, 1, 1}
		var events [2]cudart.Event
		for i := range events {
			params := make([]byte, 12)
			binary.LittleEndian.PutUint64(params, uint64(a))
			r.must(r.LaunchKernel(r.context(), f, one, one, 0, s, params))
			events[i] = r.event()
			r.must(r.EventRecord(events[i], s))
		}
		r.must(r.EventSynchronize(events[0]))
		r.must(r.MemsetAsync(r.malloc(64), 1, 64, other))
		r.sync(other)
		if done, err := r.EventQuery(events[1]); done || err != nil {
			t.Errorf("the event behind a launch that hangs: %v, %v", done, err)
		}
		r.d.EndHang(0)
		r.must(r.EventSynchronize(events[1]))
		if err := r.d.Close(); err == nil || strings.Contains(err.Error(), "kernel") {
			t.Errorf("%v, want what was not given back alone", err)
		}
	})
}

// TestFull: from the allocation that "oom:" selects on, every allocation fails.
func TestFull(t *testing.T) {
	r := planted(t, emu.Options{}, "oom:2")
	p := r.malloc(256)
	for range 2 {
		if _, err := r.Malloc(256); !errors.Is(err, cudart.ErrOutOfMemory) {
			t.Errorf("%v", err)
		}
	}
	r.must(r.Free(p))
	r.close()
	r = planted(t, emu.Options{}, "oom:64MiB")
	if _, total, err := r.MemGetInfo(); err != nil || total != 64<<20 {
		t.Errorf("%d bytes, %v", total, err)
	}
	r.end()
	r.close()
}

// TestMissing: a library that "missing:" names counts as not installed. Without libcudart, New
// fails.
func TestMissing(t *testing.T) {
	for text, want := range map[string]bool{"missing:cublasLt": true, "missing:nvml": true, "missing:cudart": false} {
		var o emu.Options
		testkit.NoError(t, o.Plant(text))
		d := emu.New(o)
		c, err := cudart.New(d)
		if (err == nil) != want || err == nil && (c.BlasLt() != nil) == (c.NVML() != nil) {
			t.Errorf("%s: %v", text, err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
