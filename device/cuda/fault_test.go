package cuda

import (
	"errors"
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
)

// scenario uses every kind of call of a device once and returns the first error. Like other
// callers, it makes many calls and then checks once for errors. Calls for which mayFail returns
// true may fail without an error.
func scenario(c *cudart.CUDA) (err error) {
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	d, e := New(Options{CUDA: c, Choices: NewChoices(true, nil)})
	if e != nil {
		return e
	}
	defer func() { keep(d.Close()) }()
	m, e := d.Alloc(accounts.Batch, 1<<16)
	if e != nil {
		return e
	}
	defer d.Free(m)
	host, e := d.AllocHost(1 << 14)
	if e != nil {
		return e
	}
	defer d.FreeHost(host)
	tile := make([]byte, 1<<14)
	if e := d.Register(tile); e != nil {
		return e
	}
	defer d.Unregister(tile)
	up, e := d.NewStream("up")
	if e != nil {
		return e
	}
	defer func() { keep(up.Close()) }()
	s, e := d.NewStream("compute")
	if e != nil {
		return e
	}
	defer func() { keep(s.Close()) }()
	there, e := d.NewEvent()
	if e != nil {
		return e
	}
	defer there.Close()
	f := func(i int64) device.Tensor { return m.Tensor(device.F32, i<<14, 16) }
	up.CopyH2D(m.Slice(0, 1<<14), tile)
	up.CopyH2D(m.Slice(1<<14, 1<<14), make([]byte, 1<<14)) // staged
	up.Record(there)
	s.Wait(there)
	s.Zero(m.Slice(1<<15, 1<<15))
	op.Do(d, s, op.MatMul{M: 4, N: 4, K: 4, A: f(0), B: f(1), D: f(2)})
	op.Do(d, s, op.MatMul{M: 4, N: 4, K: 4, A: f(0), B: f(1), C: f(2), D: f(2)})
	op.Do(d, s, op.MatMul{M: 3, N: 4, K: 4, A: f(0), B: f(1), D: f(2), Ragged: true})
	op.Do(d, s, op.Convert{Dst: m.Tensor(device.BF16, 3<<14, 16), Src: f(2), N: 16})
	cu, h := m.Tensor(device.I32, 3<<14+1<<12, 2), m.Tensor(device.BF16, 3<<14+1<<13, 64) // no queries: only the calls count
	op.Do(d, s, op.Attention{AttentionShape: op.AttentionShape{CuQ: cu, CuK: cu, Seqs: 1, TQ: 1, TK: 1, MaxQ: 1, MaxK: 1, Heads: 1, KVHeads: 1, Dim: 64, Scale: 1},
		O: h, Q: h, K: h, V: h, QStride: 64, KStride: 64})
	s.CopyD2D(f(3).Mem(), f(2).Mem())
	s.CopyD2H(host[:64], f(3).Mem())
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	keep(up.Sync())
	keep(s.Sync())
	keep(<-told)
	keep(up.Err())
	keep(s.Err())
	return err
}

// TestEveryCallFailsOnce: each CUDA call of scenario fails in turn. Its error is reported,
// whichever goroutine made the call, and no memory, stream or event stays allocated on the device.
func TestEveryCallFailsOnce(t *testing.T) {
	run := func(o emu.Options) (calls int, name string, err error) {
		drv := emu.New(o)
		c, err := cudart.New(drv)
		testkit.NoError(t, err)
		err = scenario(c)
		if closing := drv.Close(); closing != nil {
			t.Errorf("call %d (%s) failed with %v: %v", o.FailCall, drv.CallName(o.FailCall), err, closing)
		}
		return drv.Calls(), drv.CallName(o.FailCall), err
	}
	calls, _, err := run(emu.Options{})
	testkit.NoError(t, err)
	stride := 1
	switch {
	case testing.Short():
		stride = 29
	case testkit.Race:
		stride = 5 // slow
	}
	for _, code := range []int{1, 2, 999} { // invalid value, out of memory, and a fault
		for i := 1; i <= calls; i += stride {
			_, name, err := run(emu.Options{FailCall: i, FailCode: code, Mode: emu.Random, Seed: uint64(i)})
			var failed *cudart.Error
			switch {
			case mayFail(name, code):
			case !errors.As(err, &failed):
				t.Errorf("call %d (%s) failed with %d: error %v", i, name, code, err)
			case failed.Op != name:
				t.Errorf("call %d (%s) failed with %d: the error is of %s: %v", i, name, code, failed.Op, err)
			}
		}
	}
}

// TestFailedNotification: if waiting for the work before a notification fails, the notification
// still comes, with the error. The work may be incomplete, and the receiver must know.
func TestFailedNotification(t *testing.T) {
	notify := func(fail int) (waited int, told error) {
		drv := emu.New(emu.Options{FailCall: fail, FailCode: 999})
		c := testkit.Must(cudart.New(drv))(t)
		d := testkit.Must(New(Options{CUDA: c}))(t)
		s := testkit.Must(d.NewStream("s"))(t)
		heard := make(chan error, 1)
		s.Notify(func(err error) { heard <- err })
		told = <-heard
		if err := s.Close(); (err == nil) != (fail == 0) {
			t.Errorf("the stream ends with %v", err)
		}
		_ = d.Close() // of a device that is lost
		_ = drv.Close()
		for i := range drv.Calls() {
			if drv.CallName(i+1) == "cudaEventSynchronize" {
				waited = i + 1
				break
			}
		}
		return waited, told
	}
	waited, told := notify(0)
	if told != nil || waited == 0 {
		t.Fatalf("told %v after call %d", told, waited)
	}
	if _, told := notify(waited); told == nil || !strings.Contains(told.Error(), "cudaEventSynchronize") {
		t.Errorf("call %d, which waits, fails, and the notification says %v", waited, told)
	}
}

// TestFailedClosing: an error that first appears when a stream is closed is also returned by the
// device's Close. Callers that have already waited for a stream ignore the error of the stream's
// Close.
func TestFailedClosing(t *testing.T) {
	closing := func(fail int) (sync int, err error) {
		drv := emu.New(emu.Options{FailCall: fail, FailCode: 1})
		c, err := cudart.New(drv)
		testkit.NoError(t, err)
		d, err := New(Options{CUDA: c})
		testkit.NoError(t, err)
		s, err := d.NewStream("s")
		testkit.NoError(t, err)
		_ = s.Close()
		err = d.Close()
		for i := range drv.Calls() {
			if drv.CallName(i+1) == "cudaStreamSynchronize" {
				sync = i + 1
			}
		}
		if closing := drv.Close(); closing != nil {
			t.Error(closing)
		}
		return sync, err
	}
	sync, err := closing(0)
	if err != nil || sync == 0 {
		t.Fatalf("the device is closed with %v after a wait in call %d", err, sync)
	}
	if _, err := closing(sync); err == nil || !strings.Contains(err.Error(), "cudaStreamSynchronize") {
		t.Errorf("call %d, which waits, fails, and the device is closed with %v", sync, err)
	}
}

// mayFail reports whether the device works on if the CUDA function name fails with code: NVML's
// functions, whose numbers are optional, and functions that pin memory, when the system refuses.
func mayFail(name string, code int) bool {
	switch name {
	case "nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetMemoryInfo", "nvmlErrorString":
		return true
	case "cudaHostRegister", "cudaHostAlloc":
		return code != 999
	}
	return false
}

// TestOrders: the emulator runs one pipeline of three streams in many orders that the events allow.
// Every round gives the right bytes, so events prevent reading too early and overwriting too early.
func TestOrders(t *testing.T) {
	seeds, times := uint64(10), 100
	if testkit.Race || testing.Short() {
		seeds, times = 2, 20 // slow
	}
	for seed := range seeds {
		d, drv := newDevice(t, emu.Options{Mode: emu.Random, Seed: seed}, Options{})
		o := newCrossing(t, d)
		for range times {
			o.run()
		}
		if faults := drv.Faults(); len(faults) > 0 || t.Failed() {
			t.Fatalf("seed %d: %v", seed, faults)
		}
	}
}

// crossing is a pipeline for TestOrders: the stream up copies rounds of bytes to the device,
// compute copies them from in to out, and down copies them back to the host. in and out have two
// slots each, which the rounds use in turn. Four events for each slot order the streams.
type crossing struct {
	t                       *testing.T
	up, compute, down       device.Stream
	in, out                 device.Mem
	host                    []byte
	ready, idle, done, free [2]device.Event
}

const orderRounds = 6

func newCrossing(t *testing.T, d device.Device) *crossing {
	o := &crossing{t: t, up: newStream(t, d, "up"), compute: newStream(t, d, "compute"), down: newStream(t, d, "down"),
		in: alloc(t, d, 2048), out: alloc(t, d, 2048)}
	var err error
	if o.host, err = d.AllocHost(2 * orderRounds * 1024); err != nil {
		t.Fatal(err)
	}
	for i := range o.ready {
		o.ready[i], o.idle[i], o.done[i], o.free[i] = newEvent(t, d), newEvent(t, d), newEvent(t, d), newEvent(t, d)
	}
	return o
}

func (o *crossing) run() {
	for r := range orderRounds {
		k := r % len(o.ready)
		in, out := o.in.Slice(int64(k)*1024, 1024), o.out.Slice(int64(k)*1024, 1024)
		src, dst := o.host[r*1024:(r+1)*1024], o.host[(orderRounds+r)*1024:(orderRounds+r+1)*1024]
		src[0], dst[0] = byte(r+1), 0
		o.up.Wait(o.idle[k])
		o.up.CopyH2D(in, src)
		o.up.Record(o.ready[k])
		o.compute.Wait(o.ready[k])
		o.compute.Wait(o.free[k])
		o.compute.CopyD2D(out, in)
		o.compute.Record(o.idle[k])
		o.compute.Record(o.done[k])
		o.down.Wait(o.done[k])
		o.down.CopyD2H(dst, out)
		o.down.Record(o.free[k])
	}
	for _, s := range []device.Stream{o.up, o.compute, o.down} {
		if err := s.Sync(); err != nil {
			o.t.Fatal(err)
		}
	}
	for r := range orderRounds {
		if got := o.host[(orderRounds+r)*1024]; got != byte(r+1) {
			o.t.Errorf("round %d gave %d", r, got)
		}
	}
}
