package streams

import (
	"fmt"
	"strings"
	"testing"

	"mt/device"
	"mt/device/op"
)

// ErrorSticks tests what follows a failure on a stream: work is dropped, and
// everything else goes on. fail makes the stream s fail with an error that begins
// with the device's kind, the stream's name and want. Where hold is not nil, it
// holds the stream as in Run, so that everything that follows is enqueued before
// the failure happens.
func ErrorSticks(t *testing.T, d device.Device, hold func(s device.Stream) func(), want string, fail func(s device.Stream)) {
	t.Helper()
	s, e := Stream(t, d, "s"), Event(t, d)
	m, got := Alloc(t, d, 1), []byte{9}
	s.CopyH2D(m, []byte{7})
	goOn := func() {}
	if hold != nil {
		goOn = rig{d, hold}.held(t, s)
	}
	fail(s)
	s.CopyH2D(m, []byte{8})
	s.CopyD2H(got, m)
	s.Record(e)
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	other := Stream(t, d, "other")
	other.Wait(e) // completes all the same
	before := make([]byte, 1)
	other.CopyD2H(before, m)
	goOn()
	if err := other.Sync(); err != nil {
		t.Error(err)
	}
	want = fmt.Sprintf("%s: stream s: %s", d.Kind(), want)
	for _, err := range []error{<-told, s.Sync(), s.Err(), s.Close()} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if before[0] != 7 || got[0] != 9 {
		t.Errorf("memory holds %d, want 7; the copy after the failure gave %d", before[0], got[0])
	}
}

func errorsStick(t *testing.T, d rig) {
	m := Alloc(t, d, 8)
	for _, c := range []struct {
		want string
		fail func(s device.Stream)
	}{
		{"CopyH2D: 1 bytes to 0 bytes", func(s device.Stream) { s.CopyH2D(device.Mem{}, []byte{1}) }},
		{"CopyD2H: 8 bytes to 1 bytes", func(s device.Stream) { s.CopyD2H([]byte{1}, m) }},
		{"CopyD2D: 3 bytes to 8 bytes", func(s device.Stream) { s.CopyD2D(m, m.Slice(0, 3)) }},
		{"MatMul: A holds 0 elements, want 4", func(s device.Stream) {
			op.Do(d, s, op.MatMul{M: 2, N: 2, K: 2})
		}},
	} {
		t.Run(c.want, func(t *testing.T) { ErrorSticks(t, d, nil, c.want, c.fail) })
		t.Run(c.want+", held", func(t *testing.T) { ErrorSticks(t, d, d.hold, c.want, c.fail) })
	}
}

func closedStream(t *testing.T, d rig) {
	s, e := Stream(t, d, "s"), Event(t, d)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Zero(device.Mem{})
	s.Record(e)
	other := Stream(t, d, "other")
	other.Wait(e)
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	for _, err := range []error{<-told, s.Sync(), s.Close()} {
		if err == nil || !strings.Contains(err.Error(), "the stream is closed") {
			t.Errorf("error %v", err)
		}
	}
	if err := other.Sync(); err != nil {
		t.Error(err)
	}
}

// BadCall is a call of an operation with bad arguments, and what its error says.
type BadCall struct {
	Want string
	Call func(s device.Stream)
}

// BadArguments tests that each call makes a stream of its own fail with an error
// that contains want.
func BadArguments(t *testing.T, d device.Device, calls []BadCall) {
	t.Helper()
	for i, c := range calls {
		s := Stream(t, d, fmt.Sprint(i))
		c.Call(s)
		if err := s.Sync(); err == nil || !strings.Contains(err.Error(), c.Want) {
			t.Errorf("error %v, want %q", err, c.Want)
		}
	}
}
