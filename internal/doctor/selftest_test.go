package doctor

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"mt/base/accounts"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cpu"
	"mt/device/op"
	"mt/device/wrap"
	"mt/internal/doctor/measure"
	"mt/internal/testkit"
	"mt/plan/rates"
)

func newCPU(t *testing.T, o cpu.Options) device.Device {
	t.Helper()
	dev := testkit.Must(cpu.New(o))(t)
	testkit.Close(t, dev)
	return dev
}

// wrong is a device whose bias additions are slightly off.
type wrong struct{ device.Device }

func (w wrong) Do(s device.Stream, o device.Op) {
	w.Device.Do(s, o)
	if a, ok := o.(*op.AddBiasGrad); ok && a.T > 0 && a.N > 0 {
		op.Do(w.Device, s, op.AddBiasGrad{DB: a.DB, DY: a.DY, T: 1, N: 1}) // adds the first element twice
	}
}

// TestOperations: the CPU device passes, and a device with a wrong operation fails. One case per operation suffices;
// the CPU device's own tests cover the whole table.
func TestOperations(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 2})
	for _, c := range []struct {
		dev device.Device
		ok  bool
	}{{dev, true}, {wrong{dev}, false}} {
		r := &SelfTestReport{OK: true}
		r.operations(c.dev, dev, conformance.OneIn(0), "")
		for _, check := range r.Checks {
			if want := c.ok || !strings.HasPrefix(check.Name, "AddBiasGrad"); check.OK != want {
				t.Errorf("%s: ok %t, want %t: %v", check.Name, check.OK, want, check.Errors)
			}
		}
		if r.OK != c.ok || len(r.Checks) != 2*len(conformance.OperationNames()) {
			t.Errorf("ok %t after %d checks, want %t", r.OK, len(r.Checks), c.ok)
		}
	}
}

// refusing is a device whose cuBLASLt of the given version has refused products of these shapes.
type refusing struct {
	device.Device
	shapes  []string
	version int
}

func (d refusing) Fallbacks() []string { return d.shapes }
func (d refusing) OwnProducts() int64  { return 7 }
func (d refusing) CuBLASLt() int       { return d.version }

// TestProductsThatFellBack: the check fails for a device whose library refused aligned products,
// and passes without refusals. A device without a library has no such check.
func TestProductsThatFellBack(t *testing.T) {
	for n, want := range []string{"", "64x64x64 NN"} {
		r := &SelfTestReport{OK: true}
		r.products(*countProducts(refusing{nil, strings.Fields(want)[:n], 1}))
		if len(r.Checks) != 1 || r.OK != (n == 0) || n == 1 && r.Checks[0].Errors[0] != "64x64x64" {
			t.Errorf("%d shapes: ok %v, %+v", n, r.OK, r.Checks)
		}
	}
	for version, want := range []string{"is not used: mt's own kernels computed all 7 products, slower", "takes every aligned product; mt's own kernels computed 7 others"} {
		r := &SelfTestReport{OK: true}
		if r.products(*countProducts(refusing{nil, nil, version})); len(r.Checks) != 1 || r.Checks[0].Detail != want {
			t.Errorf("version %d: %+v", version, r.Checks)
		}
	}
	if p := countProducts(newCPU(t, cpu.Options{Threads: 2})); p != nil {
		t.Errorf("the CPU has %+v", p)
	}
}

// late is a device on which waits for events have no effect, so operations of its streams run in
// any order.
type late struct{ device.Device }

func (d late) NewStream(name string) (device.Stream, error) {
	s, err := d.Device.NewStream(name)
	return lateStream{s}, err
}

func (d late) Do(s device.Stream, o device.Op) { d.Device.Do(s.(lateStream).Stream, o) }

type lateStream struct{ device.Stream }

func (lateStream) Wait(device.Event) {}

// TestOrder: the check of stream order fails on a device that ignores events.
func TestOrder(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 2})
	r := &SelfTestReport{OK: true}
	if err := r.order(dev, 1<<12); err != nil || !r.OK {
		t.Errorf("%v %+v", err, r.Checks)
	}
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("what ignores events races")
	}
	r = &SelfTestReport{OK: true}
	if err := r.order(late{dev}, orderElems); err != nil || r.OK {
		t.Errorf("streams without order pass: %v %+v", err, r.Checks)
	}
}

// TestRates: every rate is present and positive, with its prediction.
func TestRates(t *testing.T) {
	defer func(was time.Duration) { enough = was }(enough)
	enough = time.Millisecond
	dev := newCPU(t, cpu.Options{Threads: 2})
	m := &rates.Machine{Link: rates.Link{Up: 10, Down: 20, Both: 16}, Device: rates.Device{Bandwidth: 100,
		Products:  map[string][]rates.Product{"bf16": {{Rate: 0.5}}, "fp32": {{Rate: 0.25}}},
		Attention: map[string][]rates.Attention{"bf16": {{Length: 128, Dim: 128, Forward: 0.2, Backward: 0.1}}}}}
	predicted := map[string]float64{"host to device": 10, "device to host": 20, "host to device, both ways": 8, "device to host, both ways": 8, "device memory": 100,
		"matrix product bf16": 0.5, "matrix product fp32": 0.25, "attention forward bf16": 0.2, "attention backward bf16": 0.1}
	r := &SelfTestReport{OK: true, machine: m}
	testkit.NoError(t, r.copies(dev))
	testkit.NoError(t, r.matMuls(dev))
	testkit.NoError(t, withMeter(dev, func(m *measure.Meter) error { return r.attention(m, device.BF16) }))
	if len(r.Rates) != 9 || !r.OK {
		t.Errorf("%d rates, ok %t", len(r.Rates), r.OK)
	}
	for _, m := range r.Rates {
		if want := predicted[m.Name]; !(m.Value > 0) || m.Measured != m.Value || math.Abs(m.Predicted-want) > 1e-6*want || m.Ratio != m.Value/m.Predicted {
			t.Errorf("%+v, want %g predicted", m, want)
		}
		if strings.HasPrefix(m.Name, "attention") && !strings.Contains(m.Detail, "28 heads of 128") {
			t.Errorf("%+v, want 28 heads of 128", m)
		}
	}
	if u := dev.Usage(); u.Total != 0 || u.Now[accounts.HostStaging] != 0 {
		t.Errorf("memory is left: %+v", u)
	}
}

// lazy is a device whose copies within the device have no effect.
type lazy struct{ device.Device }

func (d lazy) NewStream(name string) (device.Stream, error) {
	s, err := d.Device.NewStream(name)
	return lazyStream{s}, err
}

type lazyStream struct{ device.Stream }

func (lazyStream) CopyD2D(_, _ device.Mem) {}

// TestRoundTrip: the check of copies fails if a copy within the device does not move the bytes.
func TestRoundTrip(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 1})
	for d, want := range map[device.Device]bool{dev: true, lazy{dev}: false} {
		if c, err := roundTrip(d, 1<<10); err != nil || c.OK != want {
			t.Errorf("%T: %v, %+v", d, err, c)
		}
	}
}

// TestTraining: losses that differ from the CPU's by less than the bound pass, and larger
// differences fail.
func TestTraining(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 2})
	for off, want := range map[float64]bool{0: true, 1e-5: true, 1e-2: false} {
		r := &SelfTestReport{OK: true}
		calls := 0
		testkit.NoError(t, r.training(&SelfTestOptions{Device: dev, CPU: dev, Train: func(_ string, act device.DType, _ func()) ([]float64, error) {
			calls++
			return []float64{5, 4 + off*float64(calls%2)*4}, nil
		}}))
		if r.Checks[0].OK != want || !r.Checks[1].OK {
			t.Errorf("off by %v: %+v", off, r.Checks)
		}
	}
}

// TestFaults: if any single device call fails, the self test returns an error or reports a failed
// check. It leaks nothing.
func TestFaults(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 2})
	every := int64(1)
	if testkit.Race {
		every = 67
	}
	for call := int64(1); ; call += every {
		f := wrap.Fail(dev, call)
		r := &SelfTestReport{OK: true}
		err := r.order(f, 1<<10)
		if u := dev.Usage(); u.Total != 0 || u.Now[accounts.HostStaging] != 0 {
			t.Fatalf("call %d: memory is left: %+v", call, u)
		}
		if f.Calls() < call {
			if err != nil || !r.OK {
				t.Errorf("without a fault: %v", err)
			}
			return
		}
		if err == nil {
			t.Errorf("call %d failed and nobody noticed", call)
		}
	}
}

func TestTable(t *testing.T) {
	r := &SelfTestReport{Device: "a device", OK: true, Notes: []string{"a note"}}
	r.add(Check{Name: "good", OK: true, Detail: "fine"})
	bad := Check{Name: "bad", OK: true}
	for i := range 20 {
		bad.errorf("error %d", i)
	}
	r.add(bad)
	r.rate("speed", 12.5, "GB/s", "of something")
	var b bytes.Buffer
	testkit.NoError(t, r.WriteTable(&b))
	for _, want := range []string{"a device", "a note", "FAILED", "error 7", "12.5 GB/s", "1 of 2 checks failed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "error 8") {
		t.Error("all errors are printed")
	}
}

// TestSelfTest: the CPU device passes the whole self test, with itself as the reference.
func TestSelfTest(t *testing.T) {
	if testkit.Race {
		t.Skip("computes for many seconds; its parts have tests of their own")
	}
	if os.Getenv(testkit.LongVariable) != testkit.Everything {
		t.Skip("long: MT_LONG=all runs it; cmd/mt runs some parts of it, and each part has tests of its own")
	}
	dev := newCPU(t, cpu.Options{Threads: 2})
	var heard []string
	r := testkit.Must(SelfTest(t.Context(), SelfTestOptions{Device: dev, CPU: dev, Train: TrainSteps(t.Context()), Progress: func(what string) { heard = append(heard, what) }}))(t)
	if !r.OK || len(heard) != len(SelfTestParts()) || len(r.Rates) != 22 {
		t.Errorf("%d rates, %+v after %v", len(r.Rates), r, heard)
	}
	last := r.Checks[len(r.Checks)-1]
	if last.Name != "training bf16" || !strings.HasPrefix(last.Detail, "10 steps") {
		t.Errorf("the last check is %+v", last)
	}
}

// chooser is a device that records which attention kernels are selected and which operations
// follow. newer says that it has kernels for sm_90a.
type chooser struct {
	device.Device
	newer bool
	asked *[]string
}

func (c chooser) RunsSM90a() bool { return c.newer }

func (c chooser) UseAttention(kernels string) error {
	*c.asked = append(*c.asked, kernels)
	return nil
}

func (c chooser) Do(s device.Stream, o device.Op) {
	if n := len(*c.asked); n > 0 && (*c.asked)[n-1] != o.Name() {
		*c.asked = append(*c.asked, o.Name())
	}
	c.Device.Do(s, o)
}

// TestPortableAttention: on a device with kernels for sm_90a, the self test also computes attention
// with the portable kernels. Afterwards it selects the sm_90a kernels again.
func TestPortableAttention(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 2})
	for newer, want := range map[bool]string{true: "portable Attention sm90a portable AttentionBackward sm90a", false: ""} {
		var asked []string
		r := &SelfTestReport{OK: true}
		o := &SelfTestOptions{Device: chooser{dev, newer, &asked}, CPU: dev, Cases: conformance.OneIn(0)}
		for _, op := range []string{"Attention", "AttentionBackward"} {
			if err := r.portableAttention(o, op); err != nil {
				t.Error(err)
			}
		}
		if !r.OK || strings.Join(asked, " ") != want {
			t.Errorf("newer kernels %v: %q, want %q", newer, asked, want)
		}
		for _, c := range r.Checks {
			if !strings.HasSuffix(c.Name, " by the kernels for all GPUs") {
				t.Error(c.Name)
			}
		}
	}
}

// breaking is a device that is unusable after the first bias addition.
type breaking struct {
	device.Device
	broken *bool
}

func (d breaking) NewStream(name string) (device.Stream, error) {
	if *d.broken {
		return nil, errors.New("the context is lost")
	}
	return d.Device.NewStream(name)
}

func (d breaking) Do(s device.Stream, o device.Op) {
	if _, ok := o.(*op.AddBiasGrad); ok {
		*d.broken = true
		return
	}
	d.Device.Do(s, o)
}

// TestLostDevice: no case runs after the device is lost. The saved report names the case and the error, and has the
// earlier checks.
func TestLostDevice(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 2})
	var saved []SelfTestReport
	r, err := SelfTest(t.Context(), SelfTestOptions{Device: breaking{dev, new(bool)}, CPU: dev, Cases: conformance.OneIn(0), Save: func(r *SelfTestReport) error {
		saved = append(saved, *r)
		return nil
	}})
	if err == nil || len(saved) < 2 || r.OK {
		t.Fatalf("%v, saved %d times, ok %v", err, len(saved), r.OK)
	}
	if before := saved[len(saved)-2]; before.Running != "AddBiasGrad fp32" || before.Error != "" || before.OK {
		t.Errorf("%+v is saved before the operation runs", before)
	}
	got := saved[len(saved)-1]
	if !strings.HasPrefix(got.Lost, "AddBiasGrad/fp32/") || !strings.Contains(got.Error, got.Lost) || got.Seconds <= 0 {
		t.Errorf("%+v", got)
	}
	for _, c := range got.Checks {
		if c.Name > "AddBiasGrad fp32" {
			t.Errorf("%s ran after the device was lost", c.Name)
		}
	}
	if len(got.Checks) == 0 || got.Checks[len(got.Checks)-1].OK {
		t.Errorf("%+v", got.Checks)
	}
}

// TestFaultsAreReported: a failing call during a measurement of copies or products ends the measurement with its
// error.
func TestFaultsAreReported(t *testing.T) {
	defer func(was []int) { copySizes = was }(copySizes)
	copySizes = []int{1 << 10}
	dev := newCPU(t, cpu.Options{Threads: 2})
	for name, measure := range map[string]func(r *SelfTestReport, d device.Device) error{
		"copies": func(r *SelfTestReport, d device.Device) error { return r.copies(d) },
		"products": func(r *SelfTestReport, d device.Device) error {
			l, err := newLab(d)
			if err != nil {
				return err
			}
			err = r.productsAt(l, nil, sizes{product: 16})
			l.close()
			return err
		},
	} {
		for call := int64(1); ; call++ {
			d := wrap.Fail(dev, call)
			err := measure(&SelfTestReport{OK: true}, d)
			if d.Calls() < call {
				if err != nil || call < 20 {
					t.Errorf("%s: %d calls, and %v", name, d.Calls(), err)
				}
				break
			}
			if err == nil && name == "products" && call == d.Calls() {
				continue // the Sync before memory is freed, after the last result
			}
			var want *wrap.Fault
			if !errors.As(err, &want) || want.Call != call {
				t.Errorf("%s: call %d of %d failed, and the report says %v", name, call, d.Calls(), err)
			}
		}
	}
}
