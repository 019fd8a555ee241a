package cuda

import (
	"testing"

	"mt/base/accounts"
	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// Short names for what tests often do.
var (
	newStream = conformance.Stream
	newEvent  = conformance.Event
	alloc     = conformance.Alloc
	panics    = conformance.Panics
)

// bind starts an emulated driver and binds it. At the end the test fails if the driver has found faults or leaks.
func bind(t *testing.T, o emu.Options) (*emu.Driver, *cudart.CUDA) {
	t.Helper()
	drv := emu.New(o)
	testkit.Close(t, drv)
	c := testkit.Must(cudart.New(drv))(t)
	return drv, c
}

// newDevice opens an emulated device, which is closed when the test ends.
func newDevice(t *testing.T, e emu.Options, o Options) (*dev, *emu.Driver) {
	t.Helper()
	drv, c := bind(t, e)
	o.CUDA = c
	d := testkit.Must(New(o))(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		checkEmpty(t, d)
	})
	return d.(*dev), drv
}

// checkEmpty fails the test unless a device holds nothing.
func checkEmpty(t *testing.T, d device.Device) {
	t.Helper()
	if u := d.Usage(); u.Now != [accounts.NumPurposes]int64{} || u.Total != 0 {
		t.Errorf("the device holds %v, %d bytes in all", u.Now, u.Total)
	}
}

// function is an operation defined by a test.
type function struct{ f func() error }

func (f *function) Name() string { return "function" }
func (f *function) Check() error { return nil }

// functions is the table that runs function; the device's own table does not have
// it.
var functions op.Table[kernels.Launcher]

func init() {
	op.Add(&functions, func(_ kernels.Launcher, f *function) error { return f.f() })
}

// run enqueues f on s as an operation with that name; with slow the worker enqueues
// it.
func run(s device.Stream, name string, slow bool, f func() error) {
	call, err := functions.Take(&function{f})
	on(s).do(command{name: name, slow: slow, call: call}, err)
}

// hold keeps the worker of s busy until the returned function is called. Later work waits on the host meanwhile.
func hold(s device.Stream) func() {
	open := make(chan struct{})
	run(s, "hold", true, func() error { <-open; return nil })
	return func() { close(open) }
}

// pinned says whether all of b lies in one pinned range.
func pinned(d *dev, b []byte) bool {
	n, is := d.run(b)
	return is && n == int64(len(b))
}
