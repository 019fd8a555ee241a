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

// repeat runs the chosen cases o.Repeat times more, while another stream copies in both directions without a
// break. It fails where an output has other bits than the first time, as it has where a kernel races with itself or
// with a copy. It ends between two times when ctx is cancelled.
func (r *Report) repeat(ctx context.Context, o *Options) (err error) {
	first, err := r.bits(o, "")
	if err != nil {
		return err
	}
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
		again, err := r.bits(o, fmt.Sprintf(", repetition %d", i+1))
		if err != nil {
			return err
		}
		for name, got := range again {
			if was, ok := first[name]; ok && got != was {
				c.errorf("%s: repetition %d has other bits than the first time", name, i+1)
				delete(first, name) // it is named once
			}
		}
	}
	r.add(c)
	return nil
}

// bits returns hashes of the outputs of the chosen cases, by their names. What else the cases find has been reported
// before. It ends with an error at the case that leaves the device unusable. when says which repetition it is.
func (r *Report) bits(o *Options, when string) (map[string]uint64, error) {
	var lost error
	t := &tester{starts: func(name string) { r.starts(name + when) }, report: func(name string, found []string) {
		if len(found) > 0 && usable(o.Device) != nil {
			lost = fmt.Errorf("%s%s: %s", name, when, found[0])
		}
	}}
	want, out := o.cases(partTable, ""), map[string]uint64{}
	for name, result := range operations.RunSome(t, o.Device, func(name string) bool { return lost == nil && want(name) }) {
		out[name] = result.Hash
	}
	return out, lost
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
