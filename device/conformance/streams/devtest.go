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

// Run tests what open returns, once for every line of the table.
//
// open returns a device with a limit of memory that can be filled, and has it
// closed when the test ends, closed already or not. hold gives a stream work
// that lasts until the function that hold returns is called.
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

// held holds s until the function returned is called, at the latest until the
// test ends.
func (r rig) held(t *testing.T, s device.Stream) func() {
	release := sync.OnceFunc(r.hold(s))
	t.Cleanup(release)
	return release
}

// Stream starts a stream that is closed when the test ends. What Close returns
// then is for tests of errors to look at.
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

// Alloc allocates n bytes of device memory, which are the caller's to free, or
// Close's.
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
