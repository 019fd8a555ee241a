package selftest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"mt/device"
	"mt/device/op"
	"mt/internal/accounts"
	"mt/internal/machine"
	"mt/internal/measure"
	"mt/plan/rates"
)

// enough is how long a measurement should take at least. Sizes are raised until one
// call takes that long. Tests, which look at no rate, lower it.
var enough = 20 * time.Millisecond

// repeats is how often a measurement of the final size runs; the median counts.
const repeats = 5

// meter measures with one stream and two events.
type meter struct {
	dev        device.Device
	s          device.Stream
	start, end device.Event
}

func newMeter(dev device.Device) (*meter, error) {
	m := &meter{dev: dev}
	var err error
	if m.s, err = dev.NewStream("rates"); err != nil {
		return nil, err
	}
	if m.start, err = dev.NewEvent(); err == nil {
		m.end, err = dev.NewEvent()
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *meter) close() {
	for _, e := range []device.Event{m.start, m.end} {
		if e != nil {
			e.Close()
		}
	}
	_ = m.s.Close()
}

// time is the device time of what f enqueues.
func (m *meter) time(f func()) (time.Duration, error) {
	m.s.Record(m.start)
	f()
	m.s.Record(m.end)
	if err := m.s.Sync(); err != nil {
		return 0, err
	}
	return max(m.end.Elapsed(m.start), 1), nil
}

// median runs f once to warm up and then several times, and returns the median
// time.
func (m *meter) median(f func()) (time.Duration, error) {
	var all []time.Duration
	for i := range repeats + 1 {
		d, err := m.time(f)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			all = append(all, d)
		}
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// grow finds the first size whose call takes long enough, or else takes the last,
// and measures it. make returns the call for a size, and a function that undoes
// make.
func grow(m *meter, sizes []int, make func(n int) (call func(), undo func(), err error)) (size int, took time.Duration, err error) {
	for i, n := range sizes {
		call, undo, err := make(n)
		if err != nil {
			return 0, 0, err
		}
		took, err := m.time(call)
		if err == nil && (took >= enough || i+1 == len(sizes)) {
			took, err = m.median(call)
			undo()
			return n, took, err
		}
		undo()
		if err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, nil
}

// rate appends a rate, and returns it for what is predicted.
func (r *Report) rate(name string, value float64, unit, detail string, args ...any) *Rate {
	r.Rates = append(r.Rates, Rate{name, value, unit, fmt.Sprintf(detail, args...), rates.Against(0, value)})
	return &r.Rates[len(r.Rates)-1]
}

// matMul measures the rate of square products A·Bᵀ, in the same way in which a
// training run measures the rate that its mfu is relative to.
func (r *Report) matMul(m *meter, act device.DType) error {
	for _, n := range []int{256, 512, 1024, 2048, 4096, 8192} {
		rate, err := machine.MatMulRate(m.dev, act, n)
		if err != nil {
			return fmt.Errorf("matrix product %s: %w", act, err)
		}
		flops := 2 * math.Pow(float64(n), 3)
		if n == 8192 || flops/rate >= enough.Seconds() {
			said := r.rate("matrix product "+act.String(), rate/1e12, "TFLOP/s", "%d×%d×%d", n, n, n)
			said.predict(flops/1e12, r.machine.ProductSeconds(rates.Product{M: n, N: n, K: n, TransB: true}, act, false))
			return nil
		}
	}
	return nil
}

// Attention is measured with the heads of a 7B model.
const (
	attentionHeads, attentionKVHeads, attentionDim = 28, 4, 128
)

// attention measures one causal sequence, forward and backward.
func (r *Report) attention(m *meter, act device.DType) error {
	for _, backward := range []bool{false, true} {
		name, products := "attention forward "+act.String(), 2.0
		if backward {
			name, products = "attention backward "+act.String(), 5
		}
		r.starts("rate of " + name)
		n, took, err := grow(m, []int{128, 256, 512, 1024, 2048, 4096, 8192}, func(n int) (func(), func(), error) {
			return m.attentionCall(act, n, backward)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		flops := products * float64(n) * float64(n+1) * attentionHeads * attentionDim
		said := r.rate(name, flops/took.Seconds()/1e12, "TFLOP/s", "%d tokens, %d heads of %d, causal, counted half", n, attentionHeads, attentionDim)
		said.predict(flops/1e12, r.machine.AttentionSeconds(n, n, attentionHeads, attentionKVHeads, attentionDim, act, backward))
	}
	return nil
}

func (m *meter) attentionCall(act device.DType, n int, backward bool) (func(), func(), error) {
	q, kv, rows := int64(n*attentionHeads*attentionDim), int64(n*attentionKVHeads*attentionDim), int64(n*attentionHeads)
	size := act.Size()
	shape := op.AttentionShape{Seqs: 1, TQ: n, TK: n, MaxQ: n, MaxK: n, Heads: attentionHeads, KVHeads: attentionKVHeads, Dim: attentionDim,
		Scale: float32(1 / math.Sqrt(attentionDim))}
	var sums int64
	if backward && act == device.BF16 {
		sums = int64(shape.SumsLen())
	}
	mem, err := m.dev.Alloc(accounts.Workspace, size*(4*q+4*kv)+8*rows+4*sums+2*device.Align)
	if err != nil {
		return nil, nil, err
	}
	if err := measure.FillRandom(m.dev, m.s, mem, act); err != nil { // a GPU is faster on zeros
		m.dev.Free(mem)
		return nil, nil, err
	}
	used := int64(0)
	take := func(dt device.DType, elems int64) device.Tensor {
		t := mem.Tensor(dt, used, elems)
		used += elems * dt.Size()
		return t
	}
	lse, delta, cu := take(device.F32, rows), take(device.F32, rows), take(device.I32, 2)
	used = (used + device.Align - 1) / device.Align * device.Align
	bounds := make([]byte, 8)
	bounds[4], bounds[5] = byte(n), byte(n>>8)
	m.s.CopyH2D(cu.Mem(), bounds)
	if err := m.s.Sync(); err != nil {
		m.dev.Free(mem)
		return nil, nil, err
	}
	shape.CuQ, shape.CuK = cu, cu
	qt, o, do, dq := take(act, q), take(act, q), take(act, q), take(act, q)
	k, v, dk, dv := take(act, kv), take(act, kv), take(act, kv), take(act, kv)
	var scratch device.Tensor
	if sums > 0 {
		scratch = take(device.F32, sums)
	}
	wide, narrow := attentionHeads*attentionDim, attentionKVHeads*attentionDim
	forward := op.Attention{AttentionShape: shape, O: o, LSE: lse, Q: qt, K: k, V: v, QStride: wide, KStride: narrow}
	op.Do(m.dev, m.s, forward)
	call := func() { op.Do(m.dev, m.s, forward) }
	if backward {
		call = func() {
			op.Do(m.dev, m.s, op.AttentionBackward{AttentionShape: shape, DQ: dq, DK: dk, DV: dv, DO: do, O: o, LSE: lse,
				Q: qt, K: k, V: v, QStride: wide, KStride: narrow, DQStride: wide, DKStride: narrow, Delta: delta, Sums: scratch})
		}
	}
	return call, func() { m.dev.Free(mem) }, nil
}
