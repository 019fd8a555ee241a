package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"mt/base/human"
	"mt/base/parallel"
	"mt/internal/doctor/measure"
	"mt/plan/rates"
)

// CopyOptions configures Copy. Zero fields mean the defaults.
type CopyOptions struct {
	OnDevice
	Bytes []int64 // sizes of copies; default 64 KiB to 64 MiB on a CPU, to 256 MiB on a GPU
}

// CopyReport has copy rates between host and device, within device memory and within host memory.
type CopyReport struct {
	Where
	Rows []CopyRow `json:"rows"`
	// LaunchUS is the cost of the smallest operation in microseconds. Enqueue is the host's time to enqueue it, and
	// Stream its time on a stream that is already busy. RoundTrip lasts from the enqueue until the host knows that the
	// operation is complete.
	LaunchUS struct {
		Enqueue   Sample `json:"enqueue"`
		Stream    Sample `json:"stream"`
		RoundTrip Sample `json:"round_trip"`
	} `json:"launch_us"`
	// Figures has the medians of LaunchUS beside their predictions.
	Figures []Figure `json:"figures"`
	LeftOut []string `json:"left_out,omitempty"` // measurements for which the device lacks memory
}

// CopyRow is one kind of copy or update at one size. Rates are in 10⁹ bytes a second. Copies between host and device
// count each byte once. Copies within one memory, and updates, count each byte twice if it is read and written.
type CopyRow struct {
	What         string `json:"what"`
	Memory       string `json:"memory,omitempty"` // host memory: pinned, registered or pageable
	Bytes        int64  `json:"bytes"`            // bytes copied, or bytes of the layer's weights and moments
	GBps         Sample `json:"gb_per_s"`
	Runs         int    `json:"runs"`
	rates.Beside        // GB/s
}

// Copy measures copies of every size in o.Bytes, and host updates of layers with that many bytes of weights and
// moments.
func Copy(ctx context.Context, o CopyOptions) (*CopyReport, error) {
	if len(o.Bytes) == 0 {
		o.Bytes = [][]int64{{64 << 10}, {64 << 10, 1 << 20, 16 << 20, 64 << 20}, {64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20}}[o.scale()]
	}
	r := &CopyReport{}
	err := o.with("copy", func(m *measure.Meter, w Where) error {
		r.Where = w
		for _, bytes := range o.Bytes {
			if err := r.device(ctx, o, m, bytes); err != nil {
				return err
			}
		}
		if err := r.registering(ctx, o, m); err != nil {
			return err
		}
		if err := o.next(ctx, "launches"); err != nil {
			return err
		}
		l, err := m.Launch()
		if err != nil {
			return err
		}
		for to, t := range map[*Sample]measure.Seconds{&r.LaunchUS.Enqueue: l.Enqueue, &r.LaunchUS.Stream: l.Stream, &r.LaunchUS.RoundTrip: l.RoundTrip} {
			*to = Sample{Median: t.Median * 1e6, Min: t.Least * 1e6, Max: t.Most * 1e6}
		}
		r.Figures = r.launches()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := r.host(ctx, o); err != nil {
		return nil, fmt.Errorf("bench copy: %w", err)
	}
	return r, nil
}

// add appends a row. moved is the number of bytes that the rate counts, and predicted the time of the copy by the
// machine's rates, in seconds; 0: unknown.
func (r *CopyReport) add(what, memory string, bytes int64, moved float64, t measure.Seconds, predicted float64) {
	r.Rows = append(r.Rows, CopyRow{What: what, Memory: memory, Bytes: bytes, GBps: rateOf(moved/1e9, t), Runs: t.Runs,
		Beside: rates.Against(perSecond(moved/1e9, predicted), moved/1e9/t.Median)})
}

// launches returns the figures of the smallest operation (LaunchUS).
func (r *CopyReport) launches() []Figure {
	var enqueue, stream float64
	if r.machine != nil {
		enqueue, stream = r.machine.Device.Enqueue, r.machine.Device.Launch
	}
	l := r.LaunchUS
	return []Figure{{"to enqueue the smallest operation", "µs", rates.Against(enqueue, l.Enqueue.Median)}, {"the smallest operation on the stream", "µs", rates.Against(stream, l.Stream.Median)},
		{"the smallest operation, there and back", "µs", rates.Against(0, l.RoundTrip.Median)}}
}

// copySeconds predicts the time in seconds of a copy of n bytes: up to the device, down to the
// host, and both for copies in both directions together. Zeros mean that there is no prediction, as
// for pageable memory.
func (r *CopyReport) copySeconds(n float64, kind measure.Memory) (up, down, both float64) {
	m := r.machine
	if m == nil || kind == measure.Pageable {
		return 0, 0, 0
	}
	l := m.Link
	fixed := l.Latency / 1e6
	return fixed + n/(l.Up*1e9), fixed + n/(l.Down*1e9), fixed + 2*n/(l.Both*1e9)
}

// hostSeconds predicts the seconds that a host operation on this number of bytes takes. The function of selects the
// operation's cost from the host's rates. 0: there is no prediction.
func (r *CopyReport) hostSeconds(of func(h *rates.Host) rates.Op, bytes int64) float64 {
	if r.machine == nil {
		return 0
	}
	return of(&r.machine.Host).Cost(float64(bytes)).Seconds
}

// device measures all copies of one size that involve the device.
func (r *CopyReport) device(ctx context.Context, o CopyOptions, m *measure.Meter, bytes int64) error {
	leave := func(what string, err error) error {
		if outOfMemory(err) {
			r.LeftOut = append(r.LeftOut, fmt.Sprintf("%s of %s: %v", what, human.Bytes(bytes), err))
			return nil
		}
		return err
	}
	n := float64(bytes)
	for _, kind := range []measure.Memory{measure.Pinned, measure.Registered, measure.Pageable} {
		if err := o.next(ctx, "copies of %s, %s", human.Bytes(bytes), kind); err != nil {
			return err
		}
		up, err := m.H2D(bytes, kind)
		if err != nil {
			return leave("copies", err)
		}
		toDevice, toHost, each := r.copySeconds(n, kind)
		r.add("h2d", kind.String(), bytes, n, up, toDevice)
		down, err := m.D2H(bytes, kind)
		if err != nil {
			return leave("copies", err)
		}
		r.add("d2h", kind.String(), bytes, n, down, toHost)
		up, down, err = m.Both(bytes, kind)
		if err != nil {
			return leave("copies both ways", err)
		}
		r.add("h2d, both ways", kind.String(), bytes, n, up, each)
		r.add("d2h, both ways", kind.String(), bytes, n, down, each)
	}
	inside, err := m.D2D(bytes)
	if err != nil {
		return leave("d2d", err)
	}
	var seconds float64
	if r.machine != nil {
		seconds = rates.NewCosts(r.machine).Moved("", int64(2*n)).Seconds
	}
	r.add("d2d", "", bytes, 2*n, inside, seconds)
	return nil
}

// registerThreads lists the numbers of threads with which the pinning of host memory is measured.
var registerThreads = []int{1, 2, 4, measure.PinThreads}

// registering measures how fast host memory is pinned with each number of threads in registerThreads. Threads pin
// separate pieces at the same time. A GPU's piece has 256 MiB, and the memory has one piece for each thread of the
// largest number.
func (r *CopyReport) registering(ctx context.Context, o CopyOptions, m *measure.Meter) error {
	bytes := slices.Max(o.Bytes) * int64(slices.Max(registerThreads))
	if err := o.next(ctx, "registering %s", human.Bytes(bytes)); err != nil {
		return err
	}
	took, err := m.Register(bytes, registerThreads)
	if err != nil {
		return err
	}
	var seconds float64
	if r.machine != nil {
		seconds = perSecond(float64(bytes), r.machine.Link.Pin*1e9)
	}
	for i, t := range took {
		r.add(fmt.Sprintf("register, %d at a time", registerThreads[i]), "pageable", bytes, float64(bytes), t, seconds)
	}
	return nil
}

// host measures copies and optimizer updates within host memory, on all cores.
func (r *CopyReport) host(ctx context.Context, o CopyOptions) error {
	pool := parallel.New(o.Threads)
	defer pool.Close()
	for _, bytes := range o.Bytes {
		if err := o.next(ctx, "the host's memory, %s", human.Bytes(bytes)); err != nil {
			return err
		}
		t, err := measure.Memcpy(pool, bytes, o.options())
		if err != nil {
			return err
		}
		r.add("host copy", "", bytes, 2*float64(bytes), t, r.hostSeconds(func(h *rates.Host) rates.Op { return rates.Op{Rate: h.Bandwidth} }, 2*bytes))
		for _, u := range []measure.Update{{Params: bytes / 12}, {Params: bytes / 12, Split: true}, {Params: bytes / 12, Split: true, BF16: true}} {
			name, grad := "fp32", "fp32"
			if u.Split {
				name = "split"
			}
			if u.BF16 {
				grad = "bf16"
			}
			t, norm, err := u.Measure(pool, o.options())
			if err != nil {
				return err
			}
			r.add(fmt.Sprintf("host AdamW, %s, %s gradient", name, grad), "", bytes, float64(u.Bytes()), t,
				r.hostSeconds(func(h *rates.Host) rates.Op { return h.Update }, u.Bytes()))
			r.add(fmt.Sprintf("host norm of a %s gradient, %s", grad, name), "", bytes, float64(u.GradBytes()), norm,
				r.hostSeconds(func(h *rates.Host) rates.Op { return h.Norm }, u.GradBytes()))
		}
		for _, name := range slices.Sorted(maps.Keys(measure.Optimizers)) {
			u := measure.Update{Params: bytes / 12, Split: true, By: measure.Optimizers[name]}
			t, _, err := u.Measure(pool, o.options())
			if err != nil {
				return err
			}
			r.add(fmt.Sprintf("host %s, split, fp32 gradient", name), "", bytes, float64(u.Bytes()), t,
				r.hostSeconds(func(h *rates.Host) rates.Op { return h.UpdateBy(name) }, u.Bytes()))
		}
	}
	return nil
}

// WriteTable prints the report as a table.
func (r *CopyReport) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "copies and updates in GB/s (10⁹ bytes), median [least–most]; %s\n%s", r.Where, busy(r.Load)); err != nil {
		return err
	}
	rows := [][]string{{"what", "host memory", "size", "GB/s", "predicted", "ratio", "runs"}}
	for _, row := range r.Rows {
		predicted, ratio := row.Words()
		rows = append(rows, []string{row.What, row.Memory, human.Bytes(row.Bytes), row.GBps.String(), predicted, ratio, strconv.Itoa(row.Runs)})
	}
	if err := writeTable(w, r.withPredictions(rows)); err != nil {
		return err
	}
	l := r.LaunchUS
	if _, err := fmt.Fprintf(w, "the smallest operation, µs: to enqueue %s, on the stream %s, there and back %s\n", l.Enqueue, l.Stream, l.RoundTrip); err != nil {
		return err
	}
	return writeLeftOut(w, r.LeftOut)
}

// writeLeftOut prints the measurements that were left out, with the reasons.
func writeLeftOut(w io.Writer, left []string) error {
	for _, s := range left {
		if _, err := fmt.Fprintln(w, "left out:", s); err != nil {
			return err
		}
	}
	return nil
}
