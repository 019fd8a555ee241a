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

// Short names for functions that tests of this package call often.
var (
	newStream = conformance.Stream
	newEvent  = conformance.Event
	alloc     = conformance.Alloc
	panics    = conformance.Panics
)

// bind starts an emulated driver and binds cudart to it. When the test ends, it fails if the driver
// has seen misuse or leaked resources.
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

// checkEmpty fails the test if a device still has allocated memory.
func checkEmpty(t *testing.T, d device.Device) {
	t.Helper()
	if u := d.Usage(); u.Now != [accounts.NumPurposes]int64{} || u.Total != 0 {
		t.Errorf("the device holds %v, %d bytes in all", u.Now, u.Total)
	}
}

// function is an operation that runs f, a Go function of a test, in place of a kernel.
type function struct{ f func() error }

func (f *function) Name() string { return "function" }
func (f *function) Check() error { return nil }

// functions is the operation table that runs function. It is separate, because the device's own
// table has only real operations.
var functions op.Table[kernels.Launcher]

func init() {
	op.Add(&functions, func(_ kernels.Launcher, f *function) error { return f.f() })
}

// run enqueues f on s as an operation called name. If slow is true, the stream's worker enqueues it
// instead of the caller.
func run(s device.Stream, name string, slow bool, f func() error) {
	call, err := functions.Take(&function{f})
	on(s).do(command{name: name, slow: slow, call: call}, err)
}

// hold blocks the worker of s until the returned function is called. Work enqueued meanwhile waits
// in the worker's queue on the host.
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
