package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"mt/base/parallel"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/internal/doctor/measure"
	"mt/plan/rates"
)

// CalibrateOptions says on which devices and in which folder Calibrate measures.
type CalibrateOptions struct {
	Device device.Device
	More   []device.Device // further devices of the host; measured too if they differ from Device
	Host   string          // processor name for the report
	Dir    string          // folder on the checkpoint disk
	Small  bool            // tiny shapes for tests; the results are inaccurate
	// Progress is called at the start of each part with its name, its number and the number of parts. It may be nil.
	Progress func(what string, part, parts int)
}

// calibration measures the rates of one device and of the host. Each method measures one part and
// writes the rates to out.
type calibration struct {
	o      CalibrateOptions
	m      *measure.Meter
	shapes shapes
	timing measure.Options
	pool   *parallel.Pool
	out    *rates.Machine
	took   map[any][]float64 // seconds of each piece of work on the device, by pass
}

// Calibrate measures o.Device, the host, and the copy rates between the host's devices. It takes about 50 s on two
// cores. When ctx is cancelled, it ends between two measurements.
func Calibrate(ctx context.Context, o CalibrateOptions) (*rates.Machine, error) {
	m, err := calibrated(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("calibrate: what was measured cannot be: %w", err)
	}
	return m, nil
}

// calibrationPart is one part of a calibration: what names it for the progress, and do measures it.
type calibrationPart struct {
	what string
	do   func(ctx context.Context) error
}

// calibrated measures the rates that Calibrate returns, without the check of whether they are possible.
func calibrated(ctx context.Context, o CalibrateOptions) (_ *rates.Machine, err error) {
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
	parts := append(first.inPasses(), calibrationPart{"updates in host memory", first.host}, calibrationPart{"operations in a run", first.inRun}, calibrationPart{"disk", first.disk})
	for i, r := range runs[1:] {
		for _, p := range append(r.inPasses(), calibrationPart{"operations in a run", func(ctx context.Context) error { r.out.Host = first.out.Host; return r.inRun(ctx) }}) {
			parts = append(parts, calibrationPart{fmt.Sprintf("%s of device %d", p.what, i+1), p.do})
		}
	}
	if len(o.More) > 0 {
		parts = append(parts, calibrationPart{"copies between devices", func(ctx context.Context) error { return peers(ctx, runs) }})
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

// newRuns returns one calibration for the first device. If a further device differs from the first, it returns one for
// each of these too. The caller closes the runs, even after an error.
func newRuns(o CalibrateOptions, pool *parallel.Pool) (runs []*calibration, err error) {
	devs := []device.Device{o.Device}
	if slices.ContainsFunc(o.More, func(d device.Device) bool { return d.Name() != o.Device.Name() }) {
		devs = append(devs, o.More...)
	}
	for _, dev := range devs {
		r := &calibration{o: o, pool: pool, shapes: shapesFor(dev.Kind(), o.Small), timing: measure.Options{Runs: 3, Least: time.Millisecond, Most: 500 * time.Millisecond},
			took: map[any][]float64{}}
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
		of := r.timing
		of.Runs = r.shapes.runs
		if r.m, err = measure.New(dev, of); err != nil {
			return runs, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// inPasses returns the parts of the calibration that time single operations on the device, once for each pass. Other
// programs, and other virtual machines, take a processor's cores for longer than one measurement, so measurements of
// the same work lie seconds apart.
func (r *calibration) inPasses() (parts []calibrationPart) {
	for range r.shapes.passes {
		parts = append(parts, calibrationPart{"launches", r.launches}, calibrationPart{"matrix products", r.products}, calibrationPart{"attention", r.attention},
			calibrationPart{"other operations", r.operations}, calibrationPart{"copies", r.copies})
	}
	return parts
}

// median adds the time of work in this pass, and returns the median in seconds of all passes so far. work is the key
// of the work: a comparable value that no other work has.
func (r *calibration) median(work any, took measure.Seconds) float64 {
	r.took[work] = append(r.took[work], took.Median)
	return measure.Sum(r.took[work]).Median
}

// fits looks at err, the error of one measurement. It returns false without an error if the device's memory was too
// small, and the measurement is then skipped. It returns other errors as they are.
func fits(ctx context.Context, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if lacking := (*device.OutOfMemory)(nil); errors.As(err, &lacking) {
		return false, nil
	}
	return err == nil, err
}

// launches measures how long the smallest operation takes, the fixed cost of every operation.
func (r *calibration) launches(context.Context) error {
	l, err := r.m.Launch()
	if err != nil {
		return err
	}
	r.out.Device.Launch, r.out.Device.Enqueue = r.median("launch", l.Stream)*1e6, r.median("enqueue", l.Enqueue)*1e6
	return nil
}

// products measures the rate of matrix products for each linear layer, in the three forms that layers use. These are
// A·Bᵀ (forward), A·B (input gradient) and Aᵀ·B accumulated in fp32 (weight gradient).
func (r *calibration) products(ctx context.Context) error {
	clear(r.out.Device.Products)
	for _, dtype := range dtypes {
		for _, l := range r.shapes.linear {
			for _, p := range []measure.Product{{M: l.tokens, N: l.out, K: l.in, TransB: true}, {M: l.tokens, N: l.in, K: l.out}, {M: l.out, N: l.in, K: l.tokens, TransA: true, Accumulate: true}} {
				p.DType = dtype
				took, err := r.m.Product(p)
				if made, err := fits(ctx, err); err != nil {
					return err
				} else if made {
					r.out.Device.Products[dtype.String()] = append(r.out.Device.Products[dtype.String()],
						rates.Product{M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB, Rate: r.rate(p.FLOPs(), r.median(p, took))})
				}
			}
		}
	}
	return nil
}

// rate returns the rate in TFLOP/s of an operation that does flops FLOPs. seconds include the launch, which
// rates.Costs adds again, so rate subtracts it: at most half of the time, because the two are measured apart.
func (r *calibration) rate(flops, seconds float64) float64 {
	return rates.Round(flops / max(seconds-r.out.Device.Launch/1e6, seconds/2) / 1e12)
}

// attention measures causal attention for every length and head dimension.
func (r *calibration) attention(ctx context.Context) error {
	clear(r.out.Device.Attention)
	for _, dtype := range dtypes {
		for _, length := range r.shapes.lengths {
			for _, dim := range r.shapes.dims {
				a := measure.Attention{Tokens: max(length, r.shapes.tokens), Length: length, Heads: 8, KVHeads: 2, Dim: dim, DType: dtype}
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
					r.out.Device.Attention[dtype.String()] = append(r.out.Device.Attention[dtype.String()], rates.Attention{Length: length, Dim: dim,
						Forward: r.rate(a.FLOPs(), r.median(a, forward)), Backward: r.rate(b.FLOPs(), r.median(b, backward))})
				}
			}
		}
	}
	return nil
}

// operands returns the dtype in which operations other than products and attention are measured. It is the compute
// dtype that runs usually have on such a device.
func (r *calibration) operands() device.DType {
	if r.o.Device.Kind() == "cuda" {
		return device.BF16
	}
	return device.F32
}

// operations measures each other operation at two sizes, and derives its fixed time and its rate. An operation that is
// not measured gets the rate of a copy.
func (r *calibration) operations(ctx context.Context) error {
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
				seconds, moved = append(seconds, r.median(o, took)), append(moved, float64(bytes))
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
	r.out.Device.Bandwidth = rates.Round(2 * float64(r.shapes.copies) / r.median("inside the device", t) / 1e9)
	return nil
}

// inPlace measures how fast an integrated GPU accesses pinned host memory, relative to memory that it allocates.
func (r *calibration) inPlace() error {
	d, ok := r.o.Device.(interface{ InPlace(on bool) error })
	if !ok || !r.out.Device.Integrated || d.InPlace(true) != nil {
		return nil // the device copies instead
	}
	_, share, err := r.m.InPlace(r.shapes.copies / 4)
	if err := errors.Join(err, d.InPlace(false)); err != nil {
		return err
	}
	r.out.Device.HostMemory = rates.Round(r.out.Device.Bandwidth * share)
	return nil
}

// copies measures the link between host and device with registered host memory, which tiles use too. It also measures
// devices that compute on host memory, since they copy now and then.
func (r *calibration) copies(ctx context.Context) error {
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
	l.Up, l.Down = rates.Round(bytes/r.median("up", up)/1e9), rates.Round(bytes/r.median("down", down)/1e9)
	l.Both, l.Latency = rates.Round((bytes/r.median("up in both", upBoth)+bytes/r.median("down in both", downBoth))/1e9), rates.Round(r.median("least", least)*1e6)
	pinned, err := r.m.Register(r.shapes.copies, []int{measure.PinThreads})
	if err != nil {
		return err
	}
	if len(pinned) > 0 { // otherwise the device does not pin memory
		l.Pin = rates.Round(bytes / r.median("pin", pinned[0]) / 1e9)
	}
	if r.o.Device.Kind() == "cpu" {
		l.Cores, l.Peer = 1, l.Up // a copy between CPU devices stays in host memory
	}
	return ctx.Err()
}

// peers measures the copy rate from each device to the next one, if they can reach each other. Identical devices share
// one rate, the lowest.
func peers(ctx context.Context, runs []*calibration) error {
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
			l.Wires = rate > max(l.Up, l.Down) // copies that are faster than the link do not use it
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// peer returns the copy rate between two devices in GB/s; 0: from cannot reach to.
func (r *calibration) peer(from, to device.Device) (rate float64, err error) {
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

// available returns the host memory available to a run, in GiB.
func available() float64 {
	const gib = 1 << 30
	if room := host.AvailableMemory(); room.Known {
		return float64(room.Bytes) / gib
	}
	return 1
}

// dtypes are the activation dtypes of layers.
var dtypes = []device.DType{device.BF16, device.F32}

// linear is a linear layer: how many tokens it takes at once, and its inputs and outputs for each.
type linear struct{ tokens, in, out int }

// shapes are the shapes to measure.
type shapes struct {
	linear     []linear
	lengths    []int // sequence lengths
	dims       []int // head dimensions
	tokens     int   // minimum number of tokens for attention
	operations [2][2]int
	copies     int64    // bytes
	params     [2]int64 // parameters of the updated layers
	rows       [2]int   // rows to gather
	file       int64    // bytes
	// passes is how often all operations of a device are measured, and runs the timings of each in one pass.
	passes, runs int
}

// shapesFor returns the shapes to measure on a kind of device. They range from small to large, since rates grow with
// size. They include wide and deep layers, as in MLPs, and many tokens. small asks for tiny shapes for tests.
func shapesFor(kind string, small bool) shapes {
	s := shapes{lengths: []int{64, 256, 1024}, dims: []int{32, 64, 128}, tokens: 1024, operations: [2][2]int{{64, 128}, {2048, 256}}, copies: 64 << 20,
		params: [2]int64{1 << 16, 16 << 20}, rows: [2]int{16, 4096}, file: 256 << 20, passes: 5, runs: 1}
	sizes := []int{128, 512, 1024}
	switch {
	case small:
		s = shapes{lengths: []int{16}, dims: []int{64, 128}, tokens: 16, operations: [2][2]int{{2, 64}, {32, 64}}, copies: 1 << 16,
			params: [2]int64{1 << 10, 1 << 14}, rows: [2]int{2, 64}, file: 1 << 16, passes: 1, runs: 1}
		sizes = []int{32}
	case kind == "cuda":
		s.lengths, s.dims, s.tokens, s.copies, s.operations = []int{512, 2048, 8192}, []int{64, 128, 512}, 16384, 256<<20, [2][2]int{{64, 128}, {8192, 4096}}
		s.params[1], sizes = 64<<20, []int{512, 2048, 4096, 8192}
		s.passes, s.runs = 1, 3
	}
	for _, n := range sizes {
		s.linear = append(s.linear, linear{n, n, n}, linear{n, n, 4 * n}, linear{n, 4 * n, n})
		if n < sizes[len(sizes)-1] {
			s.linear = append(s.linear, linear{4 * n, n, n}, linear{n, 4 * n, 4 * n})
		}
	}
	return s
}

// host measures updates, norms and copies in host memory, and the packing of batches.
func (r *calibration) host(ctx context.Context) error {
	h := &r.out.Host
	h.Name, h.Cores, h.Memory = r.o.Host, runtime.GOMAXPROCS(0), rates.Round(available())
	t, err := measure.Memcpy(r.pool, r.shapes.copies, r.timing)
	if err != nil {
		return err
	}
	h.Bandwidth = rates.Round(2 * float64(r.shapes.copies) / t.Median / 1e9)
	// Runs on a GPU compute in bf16. They keep each fp32 weight as two planes, the bf16 high half
	// and the lower half, so updates are measured on such planes.
	split := r.o.Device.Kind() == "cuda"
	var update, norm, gather, updated, read, gathered []float64
	others := map[string]*[2][]float64{} // seconds and bytes
	for i := range 2 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		u := measure.Update{Params: r.shapes.params[i], Split: split}
		up, sum, err := u.Measure(r.pool, r.timing)
		if err != nil {
			return err
		}
		for name, by := range measure.Optimizers {
			if others[name] == nil {
				others[name] = new([2][]float64)
			}
			u := measure.Update{Params: u.Params, Split: split, By: by}
			up, _, err := u.Measure(r.pool, r.timing)
			if err != nil {
				return err
			}
			others[name][0], others[name][1] = append(others[name][0], up.Median), append(others[name][1], float64(u.Bytes()))
		}
		update, updated = append(update, up.Median), append(updated, float64(u.Bytes()))
		norm, read = append(norm, sum.Median), append(read, float64(u.GradBytes()))
		g, bytes, err := measure.Gather(r.pool, 4*r.shapes.rows[1], r.shapes.rows[i], 1024, split, r.timing)
		if err != nil {
			return err
		}
		gather, gathered = append(gather, g.Median), append(gathered, 2*float64(bytes))
	}
	h.Update, h.Norm, h.Gather = rates.Line(update, updated), rates.Line(norm, read), rates.Line(gather, gathered)
	h.Updates = map[string]rates.Op{}
	for name, of := range others {
		h.Updates[name] = rates.Line(of[0], of[1])
	}
	h.Pack, h.Message = rates.Round(packed()), messageTime
	h.Sources = map[string]string{"message_us": "not measured: half a round trip between two actors, of an EPYC (Zen 5)",
		"memory_gib": "what a run could take when this was measured"}
	return nil
}

// messageTime is the time in µs of a message between two actors if both are otherwise idle. It is the default until
// the time is measured in a run.
const messageTime = 1.8

// packed measures how long it takes to pack rows into a batch, in seconds per million tokens.
func packed() float64 {
	const rows, length = 32, 2048
	all := make([]data.Row, rows)
	for i := range all {
		all[i].IDs = make([]int32, length)
		for j := range all[i].IDs {
			all[i].IDs[j] = int32((i*length + j) * 7919 % 100003)
		}
	}
	best := math.Inf(1)
	for range 3 {
		begin := time.Now()
		data.NewBatch(1, all, 8*length)
		best = min(best, time.Since(begin).Seconds())
	}
	return best * 1e6 / (rows * length)
}

// disk measures how fast a file in o.Dir is written and read.
func (r *calibration) disk(context.Context) error {
	write, read, err := measure.Disk(r.o.Dir, r.shapes.file, measure.Options{Runs: 3, Most: 3 * time.Second})
	if err != nil {
		return err
	}
	r.out.Disk = rates.Disk{Write: rates.Round(float64(r.shapes.file) / write.Median / 1e9), Read: rates.Round(float64(r.shapes.file) / read.Median / 1e9)}
	return nil
}
