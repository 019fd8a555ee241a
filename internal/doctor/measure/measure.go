package measure

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"mt/base/accounts"
	"mt/device"
)

// Options sets the number and length of measurements. Zero fields have defaults.
type Options struct {
	// Runs is the number of timings per piece of work. Default: 5.
	Runs int
	// Least is the minimum length of one timing; shorter work is repeated within it. Default: 2 ms.
	Least time.Duration
	// Most limits the total time of the timings of one piece of work. Slower work is timed fewer than Runs times, but
	// at least once. Default: 2 s.
	Most time.Duration
}

// mostRepeats is the maximum number of repetitions within one timing.
const mostRepeats = 2000

func (o Options) filled() Options {
	if o.Runs <= 0 {
		o.Runs = 5
	}
	if o.Least <= 0 {
		o.Least = 2 * time.Millisecond
	}
	if o.Most <= 0 {
		o.Most = 2 * time.Second
	}
	return o
}

// Seconds sums up several runs of the same work: the median, shortest and longest time, in seconds.
type Seconds struct {
	Median float64 `json:"median_s"`
	Least  float64 `json:"least_s"`
	Most   float64 `json:"most_s"`
	Runs   int     `json:"runs"`
	// All has the times of the runs in order.
	All []float64 `json:"-"`
}

// Sum returns the median, shortest and longest of the run times in runs, which must not be empty.
func Sum(runs []float64) Seconds {
	sorted := slices.Sorted(slices.Values(runs))
	n := len(sorted)
	return Seconds{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[0], Most: sorted[n-1], Runs: n, All: runs}
}

// times measures work as o says: one run to warm up, then timings that each repeat the work until Least has passed.
// run repeats the work and returns the time of all repeats. Work that takes Most or longer is timed by the warm-up run
// alone.
func (o Options) times(run func(repeats int) (time.Duration, error)) (Seconds, error) {
	took, err := run(1)
	if err != nil {
		return Seconds{}, err
	}
	if took >= o.Most {
		return Sum([]float64{took.Seconds()}), nil
	}
	repeats := 1
	if took < o.Least { // a short first time may be thread start-up instead of the work
		if took, err = run(1); err != nil {
			return Seconds{}, err
		}
		repeats = int(min((o.Least+took)/max(took, 1), mostRepeats))
	}
	runs := min(o.Runs, max(1, int(o.Most/(max(took, 1)*time.Duration(repeats)))))
	var all []float64
	for range runs {
		if took, err = run(repeats); err != nil {
			return Seconds{}, err
		}
		all = append(all, max(took, 1).Seconds()/float64(repeats))
	}
	return Sum(all), nil
}

// Meter measures on one device. It must not be used by several goroutines at once.
type Meter struct {
	// Before is called before every run of an operation, warm-up runs included, and is not timed; nil: nothing is.
	Before func()

	dev    device.Device
	o      Options
	s      device.Stream
	back   device.Stream // for the opposite direction of copies
	events [8]device.Event
}

// New makes a meter on dev. Close it before the device.
func New(dev device.Device, o Options) (m *Meter, err error) {
	m = &Meter{dev: dev, o: o.filled()}
	defer func(made *Meter) {
		if err != nil {
			err = fmt.Errorf("measure: %w", errors.Join(err, made.Close()))
		}
	}(m)
	if m.s, err = dev.NewStream("measure"); err != nil {
		return nil, err
	}
	if m.back, err = dev.NewStream("measure back"); err != nil {
		return nil, err
	}
	for i := range m.events {
		if m.events[i], err = dev.NewEvent(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Close closes the streams and events. Its error is a stream's error.
func (m *Meter) Close() error {
	var errs []error
	for _, e := range m.events {
		if e != nil {
			e.Close()
		}
	}
	for _, s := range []device.Stream{m.s, m.back} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// Device returns the measured device.
func (m *Meter) Device() device.Device { return m.dev }

// enqueued measures how long the device takes for the work that call enqueues on the meter's stream.
func (m *Meter) enqueued(call func()) (Seconds, error) {
	return m.o.times(func(repeats int) (time.Duration, error) {
		if m.Before != nil {
			m.Before()
		}
		m.s.Record(m.events[0])
		for range repeats {
			call()
		}
		m.s.Record(m.events[1])
		if err := m.s.Sync(); err != nil {
			return 0, err
		}
		return m.events[1].Elapsed(m.events[0]), nil
	})
}

// memory collects requests for tensors, and then allocates all of them at once.
type memory struct {
	m     *Meter
	sizes []piece
}

// piece is a requested tensor.
type piece struct {
	into  *device.Tensor
	dtype device.DType
	elems int
	fill  func(i int) float64 // nil: random numbers in [-1, 1)
}

// want requests tensors of n random elements in [-1, 1) of type dt. take stores them in into.
func (a *memory) want(dt device.DType, n int, into ...*device.Tensor) {
	for _, t := range into {
		a.filled(t, dt, n, nil)
	}
}

// filled requests a tensor of n elements of type dt, element i being fill(i). take stores the tensor in *into; a nil
// fill means random numbers.
func (a *memory) filled(into *device.Tensor, dt device.DType, n int, fill func(i int) float64) {
	a.sizes = append(a.sizes, piece{into, dt, n, fill})
}

// take allocates memory for all requested tensors, fills them and sets the requesters' variables. The caller frees the
// memory. If the device's memory does not suffice, the error is a *device.OutOfMemory.
func (a *memory) take() (device.Mem, error) {
	var bytes int64
	for _, p := range a.sizes {
		bytes += aligned(int64(p.elems) * p.dtype.Size())
	}
	mem, err := a.m.dev.Alloc(accounts.Workspace, bytes)
	if err != nil {
		return device.Mem{}, err
	}
	var at int64
	for _, p := range a.sizes {
		if p.elems == 0 {
			*p.into = device.Tensor{}
			continue
		}
		*p.into = mem.Tensor(p.dtype, at, int64(p.elems))
		at += aligned(int64(p.elems) * p.dtype.Size())
		if p.fill == nil {
			err = FillRandom(a.m.dev, a.m.s, p.into.Mem(), p.dtype)
		} else {
			err = fillWith(a.m.dev, a.m.s, *p.into, p.fill)
		}
		if err != nil {
			a.m.dev.Free(mem)
			return device.Mem{}, err
		}
	}
	return mem, nil
}

func aligned(bytes int64) int64 { return (bytes + device.Align - 1) / device.Align * device.Align }
