package wrap_test

import (
	"errors"
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/device/cpu"
	"mt/device/op"
	"mt/device/wrap"
	"mt/internal/testkit"
)

// counted is a device that counts the events it creates. With err set it creates none, and Close
// returns err.
type counted struct {
	device.Device
	events int
	err    error
}

func (c *counted) NewEvent() (device.Event, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.events++
	return c.Device.NewEvent()
}

func (c *counted) Close() error { return errors.Join(c.err, c.Device.Close()) }

// TestEvents: Profiled reuses its events after Times. An operation for which no event can be
// created still runs; Times and Close then return the error.
func TestEvents(t *testing.T) {
	inner, err := cpu.New(cpu.Options{Threads: 1})
	testkit.NoError(t, err)
	dev := &counted{Device: inner}
	p := wrap.Profile(dev)
	mem, err := p.Alloc(accounts.Workspace, 4)
	s, serr := p.NewStream("compute")
	if err = errors.Join(err, serr); err != nil {
		t.Fatal(err)
	}
	value := []byte{0, 0, 128, 63} // 1
	s.CopyH2D(mem, value)
	run := func() ([]wrap.OpTime, error) {
		for range 3 {
			op.Do(p, s, op.Scale{X: mem.Tensor(device.F32, 0, 1), N: 1, Factor: 2})
		}
		s.CopyD2H(value, mem)
		testkit.NoError(t, s.Sync())
		return p.Times()
	}
	for range 2 {
		if times, err := run(); err != nil || len(times) != 1 || times[0].Calls != 3 || times[0].Total < 0 {
			t.Errorf("%+v, %v", times, err)
		}
	}
	if dev.events != 6 {
		t.Errorf("%d events for 3 operations at a time, want 6", dev.events)
	}
	dev.err = errors.New("no events")
	for range 2 { // the first has those of before
		op.Do(p, s, op.Scale{X: mem.Tensor(device.F32, 0, 1), N: 1, Factor: 2})
		_, err = run()
	}
	if !errors.Is(err, dev.err) || value[3] != 70 || value[2] != 128 { // 2 to the 14th
		t.Errorf("%v, memory holds %v", err, value)
	}
	p.Free(mem)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); !errors.Is(err, dev.err) {
		t.Errorf("Close: %v", err)
	}
}
