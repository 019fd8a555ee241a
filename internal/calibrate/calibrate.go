package calibrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mt/device"
	"mt/host"
	"mt/internal/measure"
	"mt/internal/parallel"
	"mt/plan/rates"
)

// Options say what to measure.
type Options struct {
	Device device.Device
	More   []device.Device // further devices of the host; those that differ are measured too
	Host   string          // the processor, for people
	Dir    string          // a folder on the disk where checkpoints go
	Small  bool            // shapes as for a test: nothing is measured well
	// Progress, unless nil, is called with the name of each part as it begins, and how many parts
	// there are.
	Progress func(what string, part, parts int)
}

// run is a calibration under way.
type run struct {
	o      Options
	m      *measure.Meter
	shapes shapes
	timing measure.Options
	pool   *parallel.Pool
	out    *rates.Machine
}

// Measure measures o.Device, the host, and what its devices copy to each other at. On two cores it takes about half a minute. When ctx is
// cancelled it ends between two measurements.
func Measure(ctx context.Context, o Options) (*rates.Machine, error) {
	m, err := measured(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("calibrate: what was measured cannot be: %w", err)
	}
	return m, nil
}

// part is one part of a calibration.
type part struct {
	what string
	do   func(ctx context.Context) error
}

// measured is what Measure returns, unchecked.
func measured(ctx context.Context, o Options) (_ *rates.Machine, err error) {
	pool := parallel.New(0)
	defer pool.Close()
	runs, err := newRuns(o, pool)
	defer func() {
		for _, r := range runs {
			err = errors.Join(err, r.m.Close())
		}
	}()
	if err != nil {
		return nil, err
	}
	first := runs[0]
	parts := append(first.ofDevice(), part{"updates in host memory", first.host}, part{"operations in a run", first.inRun}, part{"disk", first.disk})
	for i, r := range runs[1:] {
		for _, p := range append(r.ofDevice(), part{"operations in a run", func(ctx context.Context) error { r.out.Host = first.out.Host; return r.inRun(ctx) }}) {
			parts = append(parts, part{fmt.Sprintf("%s of device %d", p.what, i+1), p.do})
		}
	}
	if len(o.More) > 0 {
		parts = append(parts, part{"copies between devices", func(ctx context.Context) error { return peers(ctx, runs) }})
	}
	for i, part := range parts {
		if o.Progress != nil {
			o.Progress(part.what, i+1, len(parts))
		}
		if err := part.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	for _, r := range runs[1:] {
		first.out.More = append(first.out.More, rates.Card{Device: r.out.Device, Link: r.out.Link})
	}
	return first.out, nil
}

// newRuns makes a run for the first device and, where the others differ from it, one for each of
// those. Runs are returned with an error too, to be closed.
func newRuns(o Options, pool *parallel.Pool) (runs []*run, err error) {
	devs := []device.Device{o.Device}
	if slices.ContainsFunc(o.More, func(d device.Device) bool { return d.Name() != o.Device.Name() }) {
		devs = append(devs, o.More...)
	}
	for _, dev := range devs {
		r := &run{o: o, pool: pool, shapes: shapesFor(dev.Kind(), o.Small), timing: measure.Options{Runs: 3, Least: time.Millisecond, Most: 500 * time.Millisecond}}
		r.o.Device = dev
		if o.Small {
			r.timing = measure.Options{Runs: 1, Least: 1}
		}
		r.out = &rates.Machine{Name: dev.Name(), Source: "measured by mt doctor --save on " + time.Now().Format(time.DateOnly)}
		r.out.Device = rates.Device{Name: dev.Name(), Kind: dev.Kind(), Unified: dev.Unified(), Products: map[string][]rates.Product{},
			Attention: map[string][]rates.Attention{}, Ops: map[string]rates.Op{}, Sources: map[string]string{}}
		if dev.Kind() == "cuda" {
			use := dev.Usage()
			r.out.Device.Memory, r.out.Device.Integrated = float64(use.Limit)/(1<<30), use.Integrated
			if d, ok := dev.(interface{ RunsSM90a() bool }); ok {
				r.out.Device.SM90a = d.RunsSM90a()
			}
		}
		if r.m, err = measure.New(dev, r.timing); err != nil {
			return runs, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// ofDevice are the parts that are measured on the device without a training run.
func (r *run) ofDevice() []part {
	return []part{{"launches", r.launches}, {"matrix products", r.products}, {"attention", r.attention}, {"other operations", r.operations}, {"copies", r.copies}}
}

// fits says whether a measurement was made. One for which the device has no memory is left out.
func fits(ctx context.Context, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if lacking := (*device.OutOfMemory)(nil); errors.As(err, &lacking) {
		return false, nil
	}
	return err == nil, err
}

// launches measures what the smallest operation takes.
func (r *run) launches(context.Context) error {
	l, err := r.m.Launch()
	if err != nil {
		return err
	}
	r.out.Device.Launch, r.out.Device.Enqueue = l.Stream.Median*1e6, l.Enqueue.Median*1e6
	return nil
}

// products measures every shape with the transposes that layers use: A·Bᵀ in the forward, A·B for
// the gradient of the input, and Aᵀ·B, which adds to fp32, for that of the weights.
func (r *run) products(ctx context.Context) error {
	for _, dt := range dtypes {
		for _, s := range r.shapes.products {
			for _, t := range [][2]bool{{false, true}, {false, false}, {true, false}} {
				p := measure.Product{M: s[0], N: s[1], K: s[2], TransA: t[0], TransB: t[1], DType: dt.dtype, Accumulate: t[0]}
				took, err := r.m.Product(p)
				if made, err := fits(ctx, err); err != nil {
					return err
				} else if made {
					r.out.Device.Products[dt.name] = append(r.out.Device.Products[dt.name],
						rates.Product{M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB, Rate: rates.Round(p.FLOPs() / took.Median / 1e12)})
				}
			}
		}
	}
	return nil
}

// attention measures causal attention of every length and head dimension.
func (r *run) attention(ctx context.Context) error {
	for _, dt := range dtypes {
		for _, length := range r.shapes.lengths {
			for _, dim := range r.shapes.dims {
				a := measure.Attention{Tokens: max(length, r.shapes.tokens), Length: length, Heads: 8, KVHeads: 2, Dim: dim, DType: dt.dtype}
				b := a
				b.Backward = true
				forward, err := r.m.Attention(a)
				made, err := fits(ctx, err)
				if err != nil {
					return err
				}
				backward, err := r.m.Attention(b)
				both, err := fits(ctx, err)
				if err != nil {
					return err
				}
				if made && both {
					r.out.Device.Attention[dt.name] = append(r.out.Device.Attention[dt.name], rates.Attention{Length: length, Dim: dim,
						Forward: rates.Round(a.FLOPs() / forward.Median / 1e12), Backward: rates.Round(b.FLOPs() / backward.Median / 1e12)})
				}
			}
		}
	}
	return nil
}

// operands is the dtype with which operations other than products and attention are measured: that
// of most runs on such a device.
func (r *run) operands() device.DType {
	if r.o.Device.Kind() == "cuda" {
		return device.BF16
	}
	return device.F32
}

// operations measures each of the others at two sizes, of which its fixed time and its rate follow.
// The rate of all others is that of a copy.
func (r *run) operations(ctx context.Context) error {
	dt := r.operands()
	for _, name := range measure.Operations() {
		var seconds, moved []float64
		for _, size := range r.shapes.operations {
			o := measure.Operation{Name: name, Rows: size[0], Cols: size[1], DType: dt}
			if measure.OfExperts(name) {
				o.Cols = 64
			}
			took, bytes, err := r.m.Operation(o)
			if made, err := fits(ctx, err); err != nil {
				return err
			} else if made {
				seconds, moved = append(seconds, took.Median), append(moved, float64(bytes))
			}
		}
		if len(seconds) == 2 {
			r.out.Device.Ops[name] = rates.Line(seconds, moved)
		}
	}
	t, err := r.m.D2D(r.shapes.copies)
	if err != nil {
		return err
	}
	r.out.Device.Bandwidth = rates.Round(2 * float64(r.shapes.copies) / t.Median / 1e9)
	return nil
}

// inPlace measures how an integrated GPU computes on pinned host memory beside its own.
func (r *run) inPlace() error {
	d, ok := r.o.Device.(interface{ InPlace(on bool) error })
	if !ok || !r.out.Device.Integrated || d.InPlace(true) != nil {
		return nil // it copies
	}
	_, share, err := r.m.InPlace(r.shapes.copies / 4)
	if err := errors.Join(err, d.InPlace(false)); err != nil {
		return err
	}
	r.out.Device.HostMemory = rates.Round(r.out.Device.Bandwidth * share)
	return nil
}

// copies measures the link, with memory that is registered as tiles are. A device that computes on
// host memory copies too, now and then.
func (r *run) copies(ctx context.Context) error {
	const small = 4 << 10
	l := &r.out.Link
	bytes := float64(r.shapes.copies)
	if err := r.inPlace(); err != nil {
		return err
	}
	up, err := r.m.H2D(r.shapes.copies, measure.Registered)
	if err != nil {
		return err
	}
	down, err := r.m.D2H(r.shapes.copies, measure.Registered)
	if err != nil {
		return err
	}
	upBoth, downBoth, err := r.m.Both(r.shapes.copies, measure.Registered)
	if err != nil {
		return err
	}
	least, err := r.m.H2D(small, measure.Registered)
	if err != nil {
		return err
	}
	l.Up, l.Down = rates.Round(bytes/up.Median/1e9), rates.Round(bytes/down.Median/1e9)
	l.Both, l.Latency = rates.Round((bytes/upBoth.Median+bytes/downBoth.Median)/1e9), rates.Round(least.Median*1e6)
	pinned, err := r.m.Register(r.shapes.copies, []int{measure.PinThreads})
	if err != nil {
		return err
	}
	if len(pinned) > 0 { // else the device pins nothing
		l.Pin = rates.Round(bytes / pinned[0].Median / 1e9)
	}
	if r.o.Device.Kind() == "cpu" {
		l.Cores, l.Peer = 1, l.Up // a copy to another such device is one within the host's memory
	}
	return ctx.Err()
}

// peers measures what each device copies to the next one at, where it can. Devices that are alike
// have one rate, that of the slowest.
func peers(ctx context.Context, runs []*run) error {
	first := runs[0]
	devs := append([]device.Device{first.o.Device}, first.o.More...)
	for i, from := range devs {
		r, to := runs[min(i, len(runs)-1)], devs[(i+1)%len(devs)]
		rate, err := r.peer(from, to)
		if err != nil {
			return err
		}
		if l := &r.out.Link; i < len(runs) || rate < l.Peer {
			l.Peer = rate
			l.Wires = rate > max(l.Up, l.Down) // what is faster than the link does not go over it
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// peer is what from copies to another device at, in GB/s; 0 where it cannot.
func (r *run) peer(from, to device.Device) (rate float64, err error) {
	if can, err := from.Reach(to); !can || err != nil {
		return 0, err
	}
	m := r.m
	if from != r.o.Device {
		if m, err = measure.New(from, r.timing); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
	}
	took, err := m.Peer(to, r.shapes.copies)
	if err != nil {
		return 0, err
	}
	return rates.Round(float64(r.shapes.copies) / took.Median / 1e9), nil
}

// available is the host memory that a run could take, in GiB.
func available() float64 {
	const gib = 1 << 30
	if room := host.AvailableMemory(); room.Known {
		return float64(room.Bytes) / gib
	}
	return 1
}
