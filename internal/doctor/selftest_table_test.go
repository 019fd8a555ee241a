package doctor

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"mt/device"
	"mt/device/cpu"
	"mt/device/op"
)

// unsteady is a device that skips every bias addition from the third on, so repeated outputs
// differ.
type unsteady struct {
	device.Device
	calls *atomic.Int64
}

func (d unsteady) Do(s device.Stream, o device.Op) {
	if _, ok := o.(*op.AddBiasGrad); ok && d.calls.Add(1) > 2 {
		return
	}
	d.Device.Do(s, o)
}

// TestRepeat: operations with stable bits pass, and a case with changing bits is reported once.
func TestRepeat(t *testing.T) {
	dev := newCPU(t, cpu.Options{Threads: 2})
	o := SelfTestOptions{Device: dev, Repeat: 3, Cases: func(name string) bool {
		return strings.HasPrefix(name, "AddBiasGrad/fp32/") || strings.HasPrefix(name, "Scale/fp32/")
	}}
	steady := &SelfTestReport{OK: true}
	if err := steady.repeat(t.Context(), &o); err != nil || !steady.OK || len(steady.Checks) != 1 || !strings.Contains(steady.Checks[0].Detail, " cases, 3 times more beside copies") {
		t.Errorf("%v, %+v", err, steady)
	}
	o.Device = unsteady{dev, new(atomic.Int64)}
	changing := &SelfTestReport{OK: true}
	if err := changing.repeat(t.Context(), &o); err != nil || changing.OK || len(changing.Checks) != 1 {
		t.Fatalf("%v, %+v", err, changing)
	}
	found := changing.Checks[0].Errors
	if len(found) == 0 {
		t.Fatal("nothing is found")
	}
	seen := map[string]bool{}
	for _, e := range found {
		name, _, _ := strings.Cut(e, ":")
		if seen[name] || !strings.HasPrefix(name, "AddBiasGrad/fp32/") {
			t.Errorf("%q is named again, or is another operation", e)
		}
		seen[name] = true
	}
}

// TestRepeatEnds: a cancelled self test stops repeating operations and returns the cause.
func TestRepeatEnds(t *testing.T) {
	o := SelfTestOptions{Device: newCPU(t, cpu.Options{Threads: 2}), Repeat: 1 << 30, Cases: func(name string) bool { return strings.HasPrefix(name, "Scale/fp32/") }}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if err := new(SelfTestReport).repeat(ctx, &o); !errors.Is(err, stopped) {
		t.Errorf("cancelled: %v", err)
	}
}
