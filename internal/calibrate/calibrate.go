package calibrate

import (
	"context"
	"errors"
	"fmt"
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
	Host   string // the processor, for people
	Dir    string // a folder on the disk where checkpoints go
	Small  bool   // shapes as for a test: nothing is measured well
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

// Measure measures o.Device and the host. On two cores it takes about half a minute. When ctx is
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

// measured is what Measure returns, unchecked.
func measured(ctx context.Context, o Options) (_ *rates.Machine, err error) {
	dev := o.Device
	r := &run{o: o, shapes: shapesFor(dev.Kind(), o.Small), timing: measure.Options{Runs: 3, Least: time.Millisecond, Most: 500 * time.Millisecond}}
	if o.Small {
		r.timing = measure.Options{Runs: 1, Least: 1}
	}
	r.out = &rates.Machine{Name: dev.Name(), Source: "measured by mt doctor --save on " + time.Now().Format(time.DateOnly)}
	r.out.Device = rates.Device{Name: dev.Name(), Kind: dev.Kind(), Unified: dev.Unified(), Products: map[string][]rates.Product{},
		Attention: map[string][]rates.Attention{}, Ops: map[string]rates.Op{}, Sources: map[string]string{}}
	if dev.Kind() == "cuda" {
		r.out.Device.Memory = float64(dev.Usage().Limit) / (1 << 30)
	}
	if r.m, err = measure.New(dev, r.timing); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.m.Close()) }()
	r.pool = parallel.New(0)
	defer r.pool.Close()
	parts := []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"launches", r.launches}, {"matrix products", r.products}, {"attention", r.attention}, {"other operations", r.operations},
		{"copies", r.copies}, {"updates in host memory", r.host}, {"operations in a run", r.inRun}, {"disk", r.disk},
	}
	for i, part := range parts {
		if o.Progress != nil {
			o.Progress(part.what, i+1, len(parts))
		}
		if err := part.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return r.out, nil
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
			r.out.Device.Ops[name] = line(seconds, moved)
		}
	}
	t, err := r.m.D2D(r.shapes.copies)
	if err != nil {
		return err
	}
	r.out.Device.Bandwidth = rates.Round(2 * float64(r.shapes.copies) / t.Median / 1e9)
	return nil
}

// copies measures the link, with memory that is registered as tiles are. A device that computes on
// host memory copies too, now and then.
func (r *run) copies(ctx context.Context) error {
	const small = 4 << 10
	l := &r.out.Link
	bytes := float64(r.shapes.copies)
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
	if r.o.Device.Kind() == "cpu" {
		l.Cores, l.Peer = 1, l.Up // a copy to another such device is one within the host's memory
	}
	return ctx.Err()
}

// available is the host memory that a run could take, in GiB.
func available() float64 {
	const gib = 1 << 30
	if room := host.AvailableMemory(); room.Known {
		return float64(room.Bytes) / gib
	}
	return 1
}
