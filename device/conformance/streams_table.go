package conformance

import (
	"sync"

	"mt/base/accounts"
	"mt/device"
)

// streamRig is a device under test. hold gives a stream work that lasts until the returned function is called.
type streamRig struct {
	device.Device
	hold func(s device.Stream) func()
}

// Tester has the methods of *testing.T that the stream tests need.
type Tester interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

// Subtester is a Tester that can run subtests, as *testing.T can.
type Subtester[Self any] interface {
	Tester
	Run(name string, f func(Self)) bool
}

// Streams runs the contract's tests of everything but operations. Each test gets a new device from
// open.
//
// Function open returns a device whose memory limit can be filled, and closes the device when the
// test ends, even if the test has closed it. Function hold keeps a stream busy until the returned
// function is called.
func Streams[Self Subtester[Self]](t Self, open func(t Self) device.Device, hold func(s device.Stream) (release func())) {
	for _, c := range []struct {
		name string
		test func(t Tester, r streamRig)
	}{
		{"Usage", usage}, {"Limit", limit}, {"BadAllocations", badAllocations}, {"Misuse", misuse}, {"Close", closing},
		{"Copies", copies}, {"CopiesKeepOrder", copiesKeepOrder},
		{"WaitRefersToTheLastRecordBefore", waitRefersToTheLastRecordBefore}, {"WaitKeepsItsRecord", waitKeepsItsRecord},
		{"Elapsed", elapsed}, {"NotifyKeepsOrder", notifyKeepsOrder}, {"ClosedStream", closedStream},
		{"BadArguments", badArguments},
	} {
		t.Run(c.name, func(t Self) { c.test(t, streamRig{open(t), hold}) })
	}
	t.Run("ErrorsStick", func(t Self) { errorsStick(t, streamRig{open(t), hold}) })
}

// held keeps s busy until the returned function is called or the test ends. Meanwhile calls on s
// are enqueued but not executed.
func (r streamRig) held(t Tester, s device.Stream) func() {
	release := sync.OnceFunc(r.hold(s))
	t.Cleanup(release)
	return release
}

// Stream starts a stream and closes it when the test ends. It ignores the error of Close; tests of errors check it
// themselves.
func Stream(t Tester, d device.Device, name string) device.Stream {
	t.Helper()
	s, err := d.NewStream(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Event returns a new event of d, or ends the test.
func Event(t Tester, d device.Device) device.Event {
	t.Helper()
	e, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Alloc allocates n bytes of device memory. The caller frees them, or leaves them to the device's Close.
func Alloc(t Tester, d device.Device, n int64) device.Mem {
	t.Helper()
	m, err := d.Alloc(accounts.Activations, n)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Panics reports whether f panics.
func Panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return
}
