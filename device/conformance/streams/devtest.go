package streams

import (
	"sync"
	"testing"

	"mt/device"
	"mt/internal/accounts"
)

// rig is a device under test.
type rig struct {
	device.Device
	hold func(s device.Stream) func()
}

// Run tests the devices that open returns, one for each line of the table.
//
// open returns a device with a limit of memory that can be filled, and has it
// closed when the test ends, whether or not the test has closed it. hold gives a
// stream work that lasts until the function which hold returns is called.
func Run(t *testing.T, open func(t *testing.T) device.Device, hold func(s device.Stream) (release func())) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, r rig)
	}{
		{"Usage", usage}, {"Limit", limit}, {"BadAllocations", badAllocations}, {"Misuse", misuse}, {"Close", closing},
		{"Copies", copies}, {"CopiesKeepOrder", copiesKeepOrder},
		{"WaitRefersToTheLastRecordBefore", waitRefersToTheLastRecordBefore}, {"WaitKeepsItsRecord", waitKeepsItsRecord},
		{"Elapsed", elapsed}, {"NotifyKeepsOrder", notifyKeepsOrder}, {"ClosedStream", closedStream},
		{"ErrorsStick", errorsStick}, {"BadArguments", badArguments},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, rig{open(t), hold}) })
	}
}

// held holds s until the function that it returns is called, but no longer than the
// test lasts.
func (r rig) held(t *testing.T, s device.Stream) func() {
	release := sync.OnceFunc(r.hold(s))
	t.Cleanup(release)
	return release
}

// Stream starts a stream that is closed when the test ends. The error of that Close
// is ignored; tests of errors look at it themselves.
func Stream(t *testing.T, d device.Device, name string) device.Stream {
	t.Helper()
	s, err := d.NewStream(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Event makes an event.
func Event(t *testing.T, d device.Device) device.Event {
	t.Helper()
	e, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Alloc allocates n bytes of device memory. The caller frees them, or leaves that
// to the device's Close.
func Alloc(t *testing.T, d device.Device, n int64) device.Mem {
	t.Helper()
	m, err := d.Alloc(accounts.Activations, n)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Panics says whether f panics.
func Panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return
}
