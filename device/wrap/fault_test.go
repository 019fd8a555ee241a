package wrap_test

import (
	"errors"
	"testing"
	"time"

	"mt/base/accounts"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cpu"
	"mt/device/op"
	"mt/device/wrap"
	"mt/internal/testkit"
)

func newCPU(t *testing.T) device.Device {
	t.Helper()
	d := testkit.Must(cpu.New(cpu.Options{Threads: 2}))(t)
	return d
}

// TestTransparent: a Failing device that is told to fail no call gives correct results for
// operations.
func TestTransparent(t *testing.T) {
	d := wrap.Fail(newCPU(t), 0)
	defer d.Close()
	conformance.SomeOperations(t, d, conformance.OneIn(0))
	if d.Calls() == 0 {
		t.Error("no call was counted")
	}
}

// TestNothingFails: if the failing call is never reached, copies work as on the wrapped device. An
// error of the wrapped device itself is returned unchanged.
func TestNothingFails(t *testing.T) {
	d := wrap.FailLate(newCPU(t), 1000)
	defer d.Close()
	mem, err := d.Alloc(accounts.Batch, 2)
	testkit.NoError(t, err)
	defer d.Free(mem)
	s, err := d.NewStream("s")
	testkit.NoError(t, err)
	got := make([]byte, 2)
	s.CopyH2D(mem, []byte{7, 8})
	s.CopyD2D(mem.Slice(0, 1), mem.Slice(1, 1))
	s.CopyD2H(got, mem)
	if err := s.Close(); err != nil || got[0] != 8 || got[1] != 8 {
		t.Errorf("memory holds %v, %v", got, err)
	}
	broken := wrap.Fail(wrap.Fail(newCPU(t), 1), 0)
	defer broken.Close()
	s, err = broken.NewStream("s")
	if want := "injected fault: device call 1 (NewStream s)"; err == nil || err.Error() != want || s != nil {
		t.Errorf("a stream %v, %v, want %q", s, err, want)
	}
}

// program makes one call of each kind and returns the first reported error. As real callers do, it
// checks for errors only once after many stream calls.
func program(t *testing.T, d device.Device) (err error) {
	t.Helper()
	mem, err := d.Alloc(accounts.Batch, 1024)
	if err != nil {
		return err
	}
	defer d.Free(mem)
	host, err := d.AllocHost(512)
	if err != nil {
		return err
	}
	defer d.FreeHost(host)
	if err := d.Register(host); err != nil {
		return err
	}
	defer d.Unregister(host)
	s, err := d.NewStream("compute")
	if err != nil {
		return err
	}
	defer s.Close()
	e, err := d.NewEvent()
	if err != nil {
		return err
	}
	defer e.Close()
	other, err := cpu.New(cpu.Options{Threads: 1})
	testkit.NoError(t, err)
	defer other.Close()
	there, err := other.Alloc(accounts.Batch, 512)
	testkit.NoError(t, err)
	if ok, err := d.Reach(wrap.Fail(other, 1)); !ok || err != nil {
		return err
	}
	lo, hi := mem.Slice(0, 512), mem.Slice(512, 512)
	s.Zero(mem)
	s.CopyH2D(lo, host)
	s.CopyD2D(hi, lo)
	op.Do(d, s, op.Convert{Dst: hi.Tensor(device.F32, 0, 128), Src: lo.Tensor(device.F32, 0, 128), N: 128})
	s.CopyPeer(other, there, hi)
	s.CopyD2H(host, hi)
	s.Record(e)
	s.Wait(e)
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	early := <-told // it comes although the stream may have failed
	err = s.Sync()
	if early != nil && !errors.Is(err, early) {
		t.Errorf("Notify told of %v, Sync of %v", early, err)
	}
	if again := s.Err(); !errors.Is(again, err) {
		t.Errorf("Err is %v after Sync returned %v", again, err)
	}
	return err
}

// TestEveryCall: each call of program is made to fail once. program then returns an error that
// names the call, and all memory is released.
func TestEveryCall(t *testing.T) {
	want := []string{"Alloc for batch", "AllocHost", "Register", "NewStream compute", "NewEvent", "Reach", "Zero on stream compute",
		"CopyH2D on stream compute", "CopyD2D on stream compute", "Convert on stream compute", "CopyPeer on stream compute", "CopyD2H on stream compute",
		"Record on stream compute", "Wait on stream compute", "Sync on stream compute"}
	for i := 0; ; i++ {
		d := wrap.Fail(newCPU(t), int64(i+1))
		err := program(t, d)
		if now := d.Usage().Now; now != [accounts.NumPurposes]int64{} {
			t.Errorf("call %d failed: memory in use is %v", i+1, now)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if i == len(want) {
			if err != nil || d.Calls() != int64(len(want)) {
				t.Errorf("without a fault: %d calls, %v", d.Calls(), err)
			}
			return
		}
		var f *wrap.Fault
		if !errors.As(err, &f) || f.Name != want[i] || f.Call != int64(i+1) {
			t.Errorf("call %d: %v, want a fault of %q", i+1, err, want[i])
		}
	}
}

// TestDropped: after a fault, a stream drops copies that are enqueued later.
func TestDropped(t *testing.T) {
	d := wrap.Fail(newCPU(t), 4) // the calls are Alloc, NewStream, CopyH2D, CopyH2D
	defer d.Close()
	mem := testkit.Must(d.Alloc(accounts.Batch, 1))(t)
	s := testkit.Must(d.NewStream("s"))(t)
	defer s.Close()
	s.CopyH2D(mem, []byte{7})
	s.CopyH2D(mem, []byte{8})
	s.Zero(mem)
	got := []byte{9}
	s.CopyD2H(got, mem)
	if err := s.Sync(); err == nil {
		t.Error("no error")
	}
	other := testkit.Must(d.NewStream("other"))(t)
	defer other.Close()
	if got[0] != 9 {
		t.Error("a copy after the fault was made")
	}
	other.CopyD2H(got, mem)
	if err := other.Sync(); err != nil || got[0] != 7 {
		t.Errorf("memory holds %d, want 7 (%v)", got[0], err)
	}
}

// TestLate: a late fault is reported only when the stream executes the failing call. Neither that
// call nor later work is done.
func TestLate(t *testing.T) {
	open := make(chan struct{})
	held := testkit.Must(cpu.New(cpu.Options{Threads: 1, Delay: func(string, int64) time.Duration { <-open; return 0 }}))(t)
	d := wrap.FailLate(held, 4) // the calls are Alloc, NewStream, CopyH2D, CopyH2D
	defer d.Close()
	mem := testkit.Must(d.Alloc(accounts.Batch, 1))(t)
	defer d.Free(mem)
	s := testkit.Must(d.NewStream("s"))(t)
	s.CopyH2D(mem, []byte{7})
	s.CopyH2D(mem, []byte{8})
	if err := s.Err(); err != nil {
		t.Errorf("before it has come to it the stream says %v", err)
	}
	got := []byte{9}
	s.CopyD2H(got, mem)
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	close(open)
	var f *wrap.Fault
	if err := <-told; !errors.As(err, &f) || f.Call != 4 {
		t.Errorf("the notification tells %v", err)
	}
	if err := s.Err(); !errors.As(err, &f) || got[0] != 9 {
		t.Errorf("behind the fault the stream says %v, and a copy has brought %d", err, got[0])
	}
	if err := s.Close(); !errors.As(err, &f) {
		t.Errorf("closed, it says %v", err)
	}
}
