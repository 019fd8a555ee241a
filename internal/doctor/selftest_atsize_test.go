package doctor

import (
	"errors"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/cpu"
	"mt/device/cuda"
	"mt/device/op"
	"mt/internal/testkit"
)

// spoiled is a device on which operations compute wrong results: spoil changes the arguments of
// each.
type spoiled struct {
	device.Device
	spoil func(o device.Op) device.Op
}

func (d spoiled) Do(s device.Stream, o device.Op) { d.Device.Do(s, d.spoil(o)) }

// allSizes runs all checks with large tensors: attention, products and the long tensor.
func allSizes(r *SelfTestReport, o SelfTestOptions) (err error) {
	for _, check := range []func(*lab, sizes) error{r.attentionBy(0, false), r.attentionBy(0, true), r.attentionBy(1, false), r.attentionBy(1, true), r.productsOf(o.Own), r.longTensor} {
		err = errors.Join(err, r.atSize(&o, check))
	}
	return err
}

// TestSizes: the CPU passes the training-size checks at small sizes. A device that skips the last elements, keys or
// terms fails.
func TestSizes(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 2})
	for name, tc := range map[string]struct {
		spoil func(o device.Op) device.Op
		bad   string // prefix of the failing check
	}{
		"good": {func(o device.Op) device.Op { return o }, ""},
		"forward": {func(o device.Op) device.Op {
			if a, ok := o.(*op.Attention); ok && a.Q.DType == device.BF16 {
				b := *a
				b.Window = b.MaxK - 1
				return &b
			}
			return o
		}, "attention of "},
		"backward": {func(o device.Op) device.Op {
			if a, ok := o.(*op.AttentionBackward); ok && a.Q.DType == device.BF16 {
				b := *a
				b.Window = b.MaxK - 1
				return &b
			}
			return o
		}, "attention of "},
		"product": {func(o device.Op) device.Op {
			if a, ok := o.(*op.MatMul); ok && a.A.DType == device.BF16 && !a.TransA && !a.TransB {
				b := *a
				b.M--
				return &b
			}
			return o
		}, "matrix product 136×136×136"},
		"elements": {func(o device.Op) device.Op {
			if a, ok := o.(*op.Scale); ok {
				b := *a
				b.N--
				return &b
			}
			return o
		}, "tensor of "},
	} {
		r := &SelfTestReport{OK: true}
		if err := allSizes(r, SelfTestOptions{Device: spoiled{dev, tc.spoil}, Small: true}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(r.Checks) != 6 || len(r.Rates) != 13 || r.OK != (tc.bad == "") {
			t.Errorf("%s: ok %v, %d checks, %d rates", name, r.OK, len(r.Checks), len(r.Rates))
		}
		for _, m := range r.Rates {
			if m.Unit != "TFLOP/s" && m.Unit != "GB/s" || strings.Contains(m.Detail, "%!") {
				t.Errorf("%s: %+v", name, m)
			}
		}
		for _, c := range r.Checks {
			if !c.OK && (tc.bad == "" || !strings.HasPrefix(c.Name, tc.bad)) || !strings.HasSuffix(c.Detail, "; at small sizes") {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}

// TestSizesOnAGPU runs all checks on an emulated GPU, with mt's own products beside the library's. A GPU without
// enough memory skips the long tensor and says so.
func TestSizesOnAGPU(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, and about values")
	}
	drv := emu.New(emu.Options{})
	c := testkit.Must(cudart.New(drv))(t)
	open := func(own bool) device.Device {
		d := testkit.Must(cuda.New(cuda.Options{CUDA: c, OwnMatMul: own}))(t)
		return d
	}
	dev, own := open(false), open(true)
	r := &SelfTestReport{OK: true}
	if err := allSizes(r, SelfTestOptions{Device: dev, Own: own, Small: true}); err != nil || !r.OK {
		t.Errorf("%v %+v", err, r.Checks)
	}
	fused := 0
	for _, c := range r.Checks {
		if strings.Contains(c.Detail, ", by the fused kernels") {
			fused++
		}
	}
	if fused != len(smallSizes.attention) {
		t.Errorf("%d checks of the fused kernels: %+v", fused, r.Checks)
	}
	names := ""
	for _, x := range r.Rates {
		names += x.Name + "\n"
	}
	if n := strings.Count(names, "matrix product bf16 by mt's own kernels\n"); n != 3 {
		t.Errorf("%d rates of mt's own products:\n%s", n, names)
	}
	l := testkit.Must(newLab(dev))(t)
	r = &SelfTestReport{OK: true}
	if err := r.longTensor(l, sizes{elements: 1 << 33}); err != nil || !r.OK || !strings.HasPrefix(r.Checks[0].Detail, "skipped: two of them take 32 GiB: ") {
		t.Errorf("%v %+v", err, r.Checks)
	}
	l.close()
	for _, d := range []device.Device{own, dev} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := drv.Close(); err != nil {
		t.Error(err)
	}
}
