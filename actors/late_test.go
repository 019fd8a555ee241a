package actors

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"mt/device"
	"mt/device/wrap"
	"mt/host"
)

// errLate is the error that a stream reports for a copy that was enqueued without an error and
// failed later.
var errLate = errors.New("the copy failed on its way")

// lateDevice fails one copy to the device as a GPU does. The call succeeds, the bytes do not arrive, and the stream
// reports the error later.
type lateDevice struct {
	device.Device
	on     string // the stream of the copy
	failAt int    // the failing copy of that stream, counted from 1

	mu     sync.Mutex
	copies int
	err    error
	hidden bool // the caller that enqueued the copy has not yet asked for the error
}

func (d *lateDevice) NewStream(name string) (device.Stream, error) {
	s, err := d.Device.NewStream(name)
	if err != nil || name != d.on {
		return s, err
	}
	return &lateStream{s, d}, nil
}

type lateStream struct {
	device.Stream
	dev *lateDevice
}

func (s *lateStream) CopyH2D(dst device.Mem, src []byte) {
	d := s.dev
	d.mu.Lock()
	d.copies++
	lost := d.copies == d.failAt
	if lost {
		d.err, d.hidden = errLate, true
	}
	d.mu.Unlock()
	if !lost {
		s.Stream.CopyH2D(dst, src)
	}
}

func (s *lateStream) Err() error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hidden {
		d.hidden = false
		return nil
	}
	return d.err
}

func (s *lateStream) Sync() error {
	err := s.Stream.Sync()
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	s.dev.hidden = false
	return errors.Join(err, s.dev.err)
}

// TestLateCopyErrors makes each copy to the device in turn fail after it was enqueued. The run ends
// with the error. No weight or moment is updated with a value that was computed without the missing
// bytes.
func TestLateCopyErrors(t *testing.T) {
	least := map[string]int{"h2d": 7, "activations in": 2}
	for name, change := range map[string]func(*trial){
		"blocks":  func(*trial) {},
		"spilled": func(tr *trial) { tr.depths.ActivationSlots, tr.blocks, tr.rows = 3, 2, 3 },
		"tied":    func(tr *trial) { tr.tied, tr.bf16 = true, true },
		"shards":  func(tr *trial) { tr.shards = 2 },
		"experts": func(tr *trial) { tr.experts, tr.chosen, tr.onDemand, tr.aux = 3, 1, true, true },
	} {
		t.Run(name, func(t *testing.T) {
			on := "h2d"
			if name == "spilled" {
				on = "activations in"
			}
			for failAt := 1; ; failAt++ {
				tr := small()
				change(&tr)
				tr.evalSteps = 0 // updates before the failure may stay
				dev := &lateDevice{on: on, failAt: failAt}
				tr.wrap = func(d device.Device) device.Device {
					dev.Device = d
					return dev
				}
				var before []layerBytes
				tr.spoil = func(s *host.Store) {
					for _, l := range s.Layers {
						before = append(before, bytesOf(l))
					}
				}
				got, err := tr.run(t)
				if dev.copies < failAt {
					if err != nil || failAt < least[on] {
						t.Fatalf("%d copies, %v", dev.copies, err)
					}
					return
				}
				if !errors.Is(err, errLate) {
					t.Fatalf("copy %d failed and the run's error is %v", failAt, err)
				}
				if !reflect.DeepEqual(got.state, before) {
					t.Errorf("copy %d failed, and what came of it is in the weights", failAt)
				}
			}
		})
	}
}

// TestCopyErrorsSayWhat: if a copy cannot be enqueued, the error names that copy, not a later
// operation that depends on it.
func TestCopyErrorsSayWhat(t *testing.T) {
	want := []string{"prepare the pipeline: injected fault: ", "prepare the pipeline: injected fault: ", "prefetch layer 1: injected fault: "} // two tables, the first weights
	var said []string
	for call := int64(1); len(said) < len(want); call++ {
		tr := small()
		tr.wrap = func(d device.Device) device.Device { return wrap.Fail(d, call) }
		_, err := tr.run(t)
		if err == nil {
			t.Fatalf("%d copies to the device", len(said))
		}
		if strings.Contains(err.Error(), "(CopyH2D on stream h2d)") {
			said = append(said, err.Error())
		}
	}
	for i, want := range want {
		if !strings.HasPrefix(said[i], want) {
			t.Errorf("copy %d: %q, want %q", i+1, said[i], want)
		}
	}
}
