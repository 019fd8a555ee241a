package selftest

import (
	"context"
	"errors"
	"fmt"

	"mt/device"
	"mt/device/conformance/operations"
)

// busyBytes is the size of each copy beside repeated operations.
const busyBytes = 1 << 20

// repeat runs the cases that want accepts o.Repeat times more, while another stream copies in both directions without a
// break. It fails where an output has other bits than the first time, as it has where a kernel races with itself or
// with a copy. It ends between two times when ctx is cancelled.
func (r *Report) repeat(ctx context.Context, o Options) (err error) {
	want := o.of("")
	first := bits(o.Device, want)
	end, err := keepCopying(o.Device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	c := Check{Name: "repeated operations", OK: true, Detail: fmt.Sprintf("%d cases, %d times more beside copies", len(first), o.Repeat)}
	for i := range o.Repeat {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for name, got := range bits(o.Device, want) {
			if was, ok := first[name]; ok && got != was {
				c.errorf("%s: repetition %d has other bits than the first time", name, i+1)
				delete(first, name) // it is named once
			}
		}
		if err := usable(o.Device); err != nil {
			return fmt.Errorf("the device cannot be used after repetition %d: %w", i+1, err)
		}
	}
	r.add(c)
	return nil
}

// bits are hashes of the outputs of cases, by their names. What else the cases find has been reported before.
func bits(dev device.Device, want func(name string) bool) map[string]uint64 {
	out := map[string]uint64{}
	for name, result := range operations.RunSome(&tester{report: func(string, []string) {}}, dev, want) {
		out[name] = result.Hash
	}
	return out
}

// keepCopying copies in both directions on a stream of its own until end is called, which returns what failed.
func keepCopying(dev device.Device) (end func() error, err error) {
	p, err := newPair(dev, busyBytes)
	if err != nil {
		return nil, err
	}
	s, err := dev.NewStream("copies")
	if err != nil {
		p.free()
		return nil, err
	}
	enough, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-enough:
				failed <- nil
				return
			default:
			}
			s.CopyH2D(p.up, p.from)
			s.CopyD2H(p.to, p.up)
			if err := s.Sync(); err != nil {
				failed <- fmt.Errorf("copies beside operations: %w", err)
				return
			}
		}
	}()
	return func() error {
		close(enough)
		err := errors.Join(<-failed, s.Close())
		p.free()
		return err
	}, nil
}
