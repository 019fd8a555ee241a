package cuda

import (
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/conformance/streams"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/accounts"
)

// Short names for what tests do all the time.
var (
	newStream = streams.Stream
	newEvent  = streams.Event
	alloc     = streams.Alloc
	panics    = streams.Panics
)

// bind starts an emulated driver and binds it. What it found wrong, or was not
// given back, fails the test at its end.
func bind(t *testing.T, o emu.Options) (*emu.Driver, *cudart.CUDA) {
	t.Helper()
	drv := emu.New(o)
	t.Cleanup(func() {
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := cudart.New(drv)
	if err != nil {
		t.Fatal(err)
	}
	return drv, c
}

// newDevice opens an emulated device, which is closed when the test ends.
func newDevice(t *testing.T, e emu.Options, o Options) (*dev, *emu.Driver) {
	t.Helper()
	drv, c := bind(t, e)
	o.CUDA = c
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		checkEmpty(t, d)
	})
	return d.(*dev), drv
}

// checkEmpty wants a device to hold nothing.
func checkEmpty(t *testing.T, d device.Device) {
	t.Helper()
	if u := d.Usage(); u.Now != [accounts.NumPurposes]int64{} || u.Total != 0 {
		t.Errorf("the device holds %v, %d bytes in all", u.Now, u.Total)
	}
}

// function is an operation that a test makes up.
type function struct{ f func() error }

func (f *function) Name() string { return "function" }
func (f *function) Check() error { return nil }

// functions are what runs those: they are none of the device's.
var functions op.Table[kernels.Launcher]

func init() {
	op.Add(&functions, func(_ kernels.Launcher, f *function) error { return f.f() })
}

// run enqueues f, called name, on s; slow has the worker do so.
func run(s device.Stream, name string, slow bool, f func() error) {
	call, err := functions.Take(&function{f})
	on(s).do(command{name: name, slow: slow, call: call}, err)
}

// hold gives the worker of s something to do until the test calls the function
// that is returned: what is enqueued meanwhile waits on the host.
func hold(s device.Stream) func() {
	open := make(chan struct{})
	run(s, "hold", true, func() error { <-open; return nil })
	return func() { close(open) }
}
