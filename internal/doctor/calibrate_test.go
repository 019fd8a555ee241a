package doctor

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/base/parallel"
	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/cpu"
	"mt/device/cuda"
	"mt/internal/doctor/measure"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// lift raises rates that are too low for a real machine, so that rates.Machine.Check accepts them.
// Tiny shapes, the race detector and plain Go code make the measured rates so low. Missing rates
// stay missing.
func lift(m *rates.Machine) {
	up := func(all ...*float64) {
		for _, x := range all {
			if *x > 0 {
				*x = max(*x, 1)
			}
		}
	}
	for _, dtype := range []string{"bf16", "fp32"} {
		for i := range m.Device.Products[dtype] {
			up(&m.Device.Products[dtype][i].Rate)
		}
		for i := range m.Device.Attention[dtype] {
			up(&m.Device.Attention[dtype][i].Forward, &m.Device.Attention[dtype][i].Backward)
		}
	}
	for name, o := range m.Device.Ops {
		up(&o.Rate)
		m.Device.Ops[name] = o
	}
	h := &m.Host
	for name, o := range h.Updates {
		up(&o.Rate)
		h.Updates[name] = o
	}
	up(&m.Device.Bandwidth, &h.Bandwidth, &h.Update.Rate, &h.Norm.Rate, &h.Gather.Rate, &m.Link.Up, &m.Link.Down, &m.Link.Both, &m.Disk.Write, &m.Disk.Read)
}

// named is a device with another name. Calibrate measures devices with different names separately.
type named struct {
	device.Device
	name string
}

func (d named) Name() string { return d.name }

func (d named) Unwrap() device.Device { return d.Device }

// TestSeveralDevices: of identical devices only one is measured, of different devices each. In both cases the copy
// rate between devices is measured.
func TestSeveralDevices(t *testing.T) {
	testkit.NotShort(t)
	for name, want := range map[string]struct{ parts, more int }{"alike": {9, 0}, "other": {15, 1}} {
		var parts []string
		first, second := newCPU(t, cpu.Options{Threads: 1}), newCPU(t, cpu.Options{Threads: 1})
		if name == "other" {
			second = named{second, "another processor"}
		}
		m := testkit.Must(calibrated(t.Context(), CalibrateOptions{Device: first, More: []device.Device{second}, Dir: t.TempDir(), Small: true,
			Progress: func(what string, _, _ int) { parts = append(parts, what) }}))(t)
		if len(parts) != want.parts || len(m.More) != want.more || parts[len(parts)-1] != "copies between devices" {
			t.Errorf("%s: parts %q, further devices %v", name, parts, m.More)
		}
		for i := range 1 + want.more {
			card := m.On(i)
			if l := card.Link; l.Peer <= 0 || l.Up <= 0 || l.Wires != (l.Peer > max(l.Up, l.Down)) {
				t.Errorf("%s: device %d (%s): link %+v", name, i, card.Device.Name, l)
			}
		}
		if want.more > 0 && (m.More[0].Device.Name != "another processor" || len(m.More[0].Device.Products["fp32"]) == 0 || m.More[0].Device.Launch <= 0) {
			t.Errorf("the other device is %+v", m.More[0].Device)
		}
	}
}

// TestCalibrate: the measured rates can be saved and loaded, and include every rate that a plan needs.
func TestCalibrate(t *testing.T) {
	testkit.NotShort(t)
	var parts []string
	m, err := calibrated(t.Context(), CalibrateOptions{Device: newCPU(t, cpu.Options{Threads: 2, Unified: true}), Host: "a processor", Dir: t.TempDir(), Small: true,
		Progress: func(what string, part, of int) { parts = append(parts, what) }})
	testkit.NoError(t, err)
	lift(m)
	file := filepath.Join(t.TempDir(), "rates.json")
	testkit.NoError(t, m.Save(file))
	if m, err = rates.Load(file); err != nil {
		t.Fatal(err)
	}
	if len(parts) != 8 || !m.Device.Unified || m.Device.Kind != "cpu" || m.Host.Name != "a processor" || !strings.HasPrefix(m.Source, "measured by mt doctor --save on ") {
		t.Errorf("%d parts, %+v", len(parts), m)
	}
	for _, dtype := range []string{"bf16", "fp32"} {
		ways := map[[2]bool]int{}
		for _, p := range m.Device.Products[dtype] {
			ways[[2]bool{p.TransA, p.TransB}]++
		}
		if len(ways) != 3 || ways[[2]bool{true, false}] != 3 || len(m.Device.Attention[dtype]) != 2 {
			t.Errorf("%s: products by transposes %v, %d rates of attention", dtype, ways, len(m.Device.Attention[dtype]))
		}
	}
	for _, name := range measure.Operations() {
		if o := m.Device.Ops[name]; o.Rate <= 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if l := m.Link; l.Up <= 0 || l.Down <= 0 || l.Both <= 0 || l.Cores != 1 {
		t.Errorf("link %+v", l)
	}
}

// TestCalibrateCUDA: the rates of a GPU include its memory and its copy engines.
// rates.Machine.Check is not called, because it rejects the rates of the emulated GPU as slower
// than any machine.
func TestCalibrateCUDA(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector; a CPU is measured there")
	}
	drv := emu.New(emu.Options{Integrated: true})
	c := testkit.Must(cudart.New(drv))(t)
	dev := testkit.Must(cuda.New(cuda.Options{CUDA: c, MemoryLimit: 1 << 30}))(t)
	m := testkit.Must(calibrated(t.Context(), CalibrateOptions{Device: dev, Dir: t.TempDir(), Small: true}))(t)
	testkit.Check(t, "the device",
		testkit.Is("kind", m.Device.Kind, "cuda"),
		testkit.Is("memory", m.Device.Memory, 1),
		testkit.Is("unified", m.Device.Unified, false),
		testkit.Is("host memory in place", m.Device.HostMemory > 0, true),
		testkit.Is("unified afterwards", dev.Unified(), false),
		testkit.Is("cores of the link", m.Link.Cores, 0),
		testkit.Is("bf16 products", len(m.Device.Products["bf16"]), 9),
		testkit.Is("operations", len(m.Device.Ops), len(measure.Operations())),
	)
	if err := errors.Join(dev.Close(), drv.Close()); err != nil {
		t.Error(err)
	}
}

// TestCalibrateEnds: a cancelled calibration ends, and a device without memory gives an error.
func TestCalibrateEnds(t *testing.T) {
	testkit.NotShort(t)
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := CalibrateOptions{Device: newCPU(t, cpu.Options{Threads: 1}), Dir: t.TempDir(), Small: true, Progress: func(what string, _, _ int) {
		if what == "matrix products" {
			cancel(stopped)
		}
	}}
	if _, err := Calibrate(ctx, o); !errors.Is(err, stopped) {
		t.Errorf("cancelled: %v", err)
	}
	var lacking *device.OutOfMemory
	o = CalibrateOptions{Device: newCPU(t, cpu.Options{Threads: 1, MemoryLimit: 8 << 10}), Dir: t.TempDir(), Small: true}
	if _, err := Calibrate(t.Context(), o); !errors.As(err, &lacking) {
		t.Errorf("8 KiB of memory: %v", err)
	}
	o = CalibrateOptions{Device: newCPU(t, cpu.Options{Threads: 1}), Dir: filepath.Join(t.TempDir(), "none"), Small: true}
	if _, err := Calibrate(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "calibrate: disk: ") {
		t.Errorf("no such folder: %v", err)
	}
}

func TestLine(t *testing.T) {
	for _, tc := range []struct {
		seconds, bytes []float64
		want           rates.Op
	}{
		{[]float64{3e-6, 102e-6}, []float64{1e3, 100e3}, rates.Op{Fixed: 2, Rate: 1}},
		{[]float64{1e-6, 100e-6}, []float64{1e3, 100e3}, rates.Op{Rate: 1}},
		{[]float64{200e-6, 100e-6}, []float64{1e3, 100e3}, rates.Op{Fixed: 199, Rate: 1}},
		{[]float64{99.9e-6, 100e-6}, []float64{1e3, 100e3}, rates.Op{Fixed: 98.9, Rate: 1}},
		{[]float64{100e-6, 100e-6}, []float64{100e3, 100e3}, rates.Op{Rate: 1}},
	} {
		if got := rates.Line(tc.seconds, tc.bytes); math.Abs(got.Fixed-tc.want.Fixed) > 1e-3 || math.Abs(got.Rate-tc.want.Rate) > 1e-3 {
			t.Errorf("%v s for %v bytes: %+v, want %+v", tc.seconds, tc.bytes, got, tc.want)
		}
	}
}

// TestShapes: GPUs are measured with larger shapes than CPUs. Beside the largest layer with n tokens, inputs and outputs,
// there is one with 4n outputs and one with 4n inputs, as in MLPs. Smaller ones also have many tokens, and few.
func TestShapes(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		all := shapesFor(kind, false).linear
		has := func(l linear) bool { return slices.Contains(all, l) }
		n, few := all[len(all)-1].tokens, all[0].tokens
		if !has(linear{n, n, n}) || !has(linear{n, n, 4 * n}) || !has(linear{n, 4 * n, n}) || !has(linear{4 * few, few, few}) || !has(linear{few, 4 * few, 4 * few}) || (kind == "cuda") != (n > 4096) {
			t.Errorf("%s: %v", kind, all)
		}
	}
}

// TestRateWithoutLaunch: a rate does not include the launch, whose time the cost of an operation adds again.
func TestRateWithoutLaunch(t *testing.T) {
	r := calibration{out: &rates.Machine{Device: rates.Device{Launch: 20}}}
	for took, want := range map[float64]float64{120e-6: 1, 30e-6: 20.0 / 3} {
		if got := r.rate(1e8, took); math.Abs(got-want) > 1e-3 {
			t.Errorf("1e8 FLOPs in %g s, 20 µs of them for the launch: %g TFLOP/s, want %g", took, got, want)
		}
	}
}

// TestPasses: a rate is that of the median pass, so one disturbed pass does not count. Each piece of work has its own
// median, and each shape its one rate after all passes.
func TestPasses(t *testing.T) {
	r := calibration{took: map[any][]float64{}}
	var got [2]float64
	for _, took := range []float64{3, 2, 9} {
		got = [2]float64{r.median(measure.Product{M: 1}, measure.Seconds{Median: took}), r.median(measure.Product{M: 2}, measure.Seconds{Median: took + 1})}
	}
	if want := [2]float64{3, 4}; got != want {
		t.Errorf("the medians of three passes are %v, want %v", got, want)
	}
	dev := newCPU(t, cpu.Options{Threads: 1})
	runs := testkit.Must(newRuns(CalibrateOptions{Device: dev, Small: true}, parallel.New(1)))(t)
	testkit.Close(t, runs[0].m)
	for range 2 {
		testkit.NoError(t, errors.Join(runs[0].products(t.Context()), runs[0].attention(t.Context())))
	}
	if d := runs[0].out.Device; len(d.Products["fp32"]) != 9 || len(d.Attention["fp32"]) != 2 {
		t.Errorf("after two passes there are %d rates of products and %d of attention, want 9 and 2", len(d.Products["fp32"]), len(d.Attention["fp32"]))
	}
}
