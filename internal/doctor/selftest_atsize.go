package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"mt/base/accounts"
	"mt/base/bf16"
	"mt/base/human"
	"mt/device"
	"mt/device/op"
	"mt/plan/rates"
)

// sizes has the sizes of checks with large tensors, as in training. The operation table compares with results in
// float64, which are slow to compute, so its tensors are small. The checks here compare two ways in which the device
// itself computes the same result.
type sizes struct {
	attention []sequences
	product   int   // M, N and K of a matrix product
	elements  int64 // elements of a tensor; on a GPU more than an int32 can count
	said      string
}

// sequences are n sequences of equal length.
type sequences struct{ n, tokens int }

var (
	largeSizes = sizes{attention: []sequences{{16, 1024}, {1, 8192}}, product: 4096, elements: 1<<31 + 1<<20}
	smallSizes = sizes{attention: []sequences{{3, 40}, {1, 150}}, product: 136, elements: 1<<16 + 8, said: "; at small sizes"}
)

// Attention heads of the checks: as wide as in large models, but few, so that the comparison on the host is fast.
const sizedHeads, sizedKVHeads, sizedDim = 4, 2, 128

// Bounds of these comparisons.
const (
	// Bound for a row of attention outputs or gradients, bf16 against fp32 on equal inputs. The error is the norm of
	// the difference, divided by the norm of the row plus the mean row norm. bf16 rounds outputs, probabilities and
	// their gradients by at most 2^-9 each, and few roundings affect one row at once. A row that is skipped or added
	// twice has an error of at least 1/4.
	attentionBound = 1.0 / (1 << 5)
	// Bound for the log-sum-exp of a query's attention scores. Both computations keep it in fp32,
	// so it differs only by the order of summation and the rounding of exp.
	lseBound = 1.0 / (1 << 10)
)

// productBound returns the largest allowed difference between two products that sum the same n
// terms in different orders. The terms are products of two numbers in [-1, 1) and have random
// signs, so partial sums stay below about 4·√n. Each addition rounds by at most 2^-24 of the sum,
// with random sign. Then n additions err by about √n · 4·√n · 2^-24 = 4n · 2^-24, and the bound is
// 16 times that. A missing term causes an error of 1/4 on average.
func productBound(n int) float64 { return 64 * float64(n) / (1 << 24) }

// atSize runs a check with large tensors. It gives the check the sizes and a lab, which runs
// operations on o.Device. The sizes are smaller if o.Small is set.
func (r *SelfTestReport) atSize(o *SelfTestOptions, check func(l *lab, size sizes) error) error {
	size := largeSizes
	if o.Small {
		size = smallSizes
	}
	l, err := newLab(o.Device)
	if err != nil {
		return err
	}
	defer l.close()
	return check(l, size)
}

// productsOf returns a check of large matrix products. The check also computes them on own, the same device with mt's
// own kernels; nil: there is none.
func (r *SelfTestReport) productsOf(own device.Device) func(l *lab, size sizes) error {
	return func(l *lab, size sizes) error {
		if err := r.productsAt(l, own, size); err != nil {
			return fmt.Errorf("matrix products of %d: %w", size.product, err)
		}
		return nil
	}
}

// attentionBy returns a check of attention at the i-th size of sizes.attention. It uses the device's default kernels.
// If fused is true, it uses the fused kernels instead, on devices whose default kernels are for sm_90a.
func (r *SelfTestReport) attentionBy(i int, fused bool) func(l *lab, size sizes) error {
	return func(l *lab, size sizes) error {
		of := size.attention[i]
		err := error(nil)
		if fused {
			err = withKernels(l.dev, "fused", func() error { return r.attentionAt(l, of, ", by the fused kernels"+size.said) })
		} else {
			err = r.attentionAt(l, of, size.said)
		}
		if err != nil {
			return fmt.Errorf("attention of %d × %d tokens: %w", of.n, of.tokens, err)
		}
		return nil
	}
}

// attended is the result of one forward and backward attention.
type attended struct {
	o, dq, dk, dv, lse []float32
	forward, backward  time.Duration
}

// attentionAt compares the bf16 attention kernels with the fp32 kernel on equal inputs, which bf16 represents exactly.
// said names the kernels in the report.
func (r *SelfTestReport) attentionAt(l *lab, of sequences, said string) error {
	rng := rand.New(rand.NewPCG(7, uint64(of.tokens)))
	t := of.n * of.tokens
	wide, narrow := t*sizedHeads*sizedDim, t*sizedKVHeads*sizedDim
	in := [4][]float32{uniform(rng, wide, 3), uniform(rng, narrow, 3), uniform(rng, narrow, 1), uniform(rng, wide, 1)} // Q, K, V, DO
	name := fmt.Sprintf("attention of %d × %d tokens", of.n, of.tokens)
	r.starts(name + " in bf16" + said)
	got, err := l.attend(device.BF16, of, in)
	if err != nil {
		return err
	}
	r.starts(name + " in fp32" + said)
	want, err := l.attend(device.F32, of, in)
	if err != nil {
		return err
	}
	r.starts(name + ", the comparison")
	c := Check{Name: name, OK: true}
	worst := 0.0
	for _, x := range []struct {
		name      string
		got, want []float32
	}{{"O", got.o, want.o}, {"DQ", got.dq, want.dq}, {"DK", got.dk, want.dk}, {"DV", got.dv, want.dv}} {
		at, off := rowsDiffer(x.got, x.want, sizedDim)
		worst = max(worst, off)
		if !(off <= attentionBound) {
			c.errorf("%s: row %d, of %d elements, is off by %.2g, at most %.2g is allowed", x.name, at, sizedDim, off, attentionBound)
		}
	}
	at, off := elementsDiffer(got.lse, want.lse)
	if !(off <= lseBound) {
		c.errorf("LSE: element %d is off by %.2g, at most %.2g is allowed", at, off, lseBound)
	}
	c.Detail = fmt.Sprintf("%d heads of %d, bf16 beside fp32, forward and backward: worst row %.2f of what is allowed%s", sizedHeads, sizedDim, worst/attentionBound, said)
	r.add(c)
	pairs := float64(of.n) * float64(of.tokens) * float64(of.tokens+1) * sizedHeads * sizedDim
	for _, x := range []struct {
		name string
		took time.Duration
		each float64
		act  device.DType
	}{{"forward bf16", got.forward, 2, device.BF16}, {"backward bf16", got.backward, 5, device.BF16}, {"forward fp32", want.forward, 2, device.F32}, {"backward fp32", want.backward, 5, device.F32}} {
		rate := r.rate("attention "+x.name, x.each*pairs/x.took.Seconds()/1e12, "TFLOP/s", "%d × %d tokens, %d heads of %d, in %s%s", of.n, of.tokens, sizedHeads, sizedDim, took(x.took), said)
		rate.predict(x.each*pairs/1e12, r.machine.AttentionSeconds(of.n*of.tokens, of.tokens, sizedHeads, sizedKVHeads, sizedDim, x.act, x.each == 5))
	}
	return nil
}

// attend computes attention and its gradients in the dtype act for the inputs in (Q, K, V and the output's gradient).
// It frees the device memory afterwards.
func (l *lab) attend(act device.DType, of sequences, in [4][]float32) (out attended, err error) {
	defer l.free()
	t := of.n * of.tokens
	wide, narrow := sizedHeads*sizedDim, sizedKVHeads*sizedDim
	bounds := make([]int32, of.n+1)
	for i := range bounds {
		bounds[i] = int32(i * of.tokens)
	}
	cu := l.indices(bounds)
	q, k, v, do := l.of(act, in[0]), l.of(act, in[1]), l.of(act, in[2]), l.of(act, in[3])
	o, dq, dk, dv := l.tensor(act, t*wide), l.tensor(act, t*wide), l.tensor(act, t*narrow), l.tensor(act, t*narrow)
	lse, delta := l.tensor(device.F32, t*sizedHeads), l.tensor(device.F32, t*sizedHeads)
	shape := op.AttentionShape{CuQ: cu, CuK: cu, Seqs: of.n, TQ: t, TK: t, MaxQ: of.tokens, MaxK: of.tokens, Heads: sizedHeads,
		KVHeads: sizedKVHeads, Dim: sizedDim, Scale: float32(1 / math.Sqrt(sizedDim))}
	var sums device.Tensor
	if act == device.BF16 {
		sums = l.tensor(device.F32, shape.SumsLen())
	}
	if l.err != nil {
		return out, l.err
	}
	forward := op.Attention{AttentionShape: shape, O: o, LSE: lse, Q: q, K: k, V: v, QStride: wide, KStride: narrow}
	backward := op.AttentionBackward{AttentionShape: shape, DQ: dq, DK: dk, DV: dv, DO: do, O: o, LSE: lse, Q: q, K: k, V: v,
		QStride: wide, KStride: narrow, DQStride: wide, DKStride: narrow, Delta: delta, Sums: sums}
	out.forward, out.backward = l.timed(func() { op.Do(l.dev, l.s, forward) }), l.timed(func() { op.Do(l.dev, l.s, backward) })
	out.o, out.dq, out.dk, out.dv, out.lse = l.read(o), l.read(dq), l.read(dk), l.read(dv), l.read(lse)
	return out, l.err
}

// productsAt computes large bf16 products by the device's library and by mt's own kernels. It
// compares both with fp32 products. The lab own runs on the same device with mt's own kernels; nil:
// the device has no library.
func (r *SelfTestReport) productsAt(l *lab, own device.Device, size sizes) error {
	n := size.product
	rng := rand.New(rand.NewPCG(11, uint64(n)))
	a, b := uniform(rng, n*n, 1), uniform(rng, n*n, 1)
	by := []maker{{"", l}}
	if own != nil {
		mine, err := newLab(own)
		if err != nil {
			return err
		}
		defer mine.close()
		by = append(by, maker{" by mt's own kernels", mine})
	}
	for _, m := range []op.MatMul{{M: n, N: n, K: n}, {M: n, N: n, K: n, TransB: true}, {M: n, N: n, K: n, TransA: true}} {
		shape, flops := m.Work()
		r.starts("matrix product fp32 " + shape)
		want, _ := by[len(by)-1].lab.multiply(device.F32, m, a, b)
		c := Check{Name: "matrix product " + shape, OK: true}
		worst := 0.0
		for _, x := range by {
			r.starts("matrix product bf16" + x.name + " " + shape)
			got, took1 := x.lab.multiply(device.BF16, m, a, b)
			if x.lab.err != nil {
				return x.lab.err
			}
			at, off := elementsDiffer(got, want)
			worst = max(worst, off)
			if !(off <= productBound(n)) {
				c.errorf("bf16%s: element %d is off by %.2g, at most %.2g is allowed", x.name, at, off, productBound(n))
			}
			rate := r.rate("matrix product bf16"+x.name, flops/took1.Seconds()/1e12, "TFLOP/s", "%s, in %s%s", shape, took(took1), size.said)
			if x.name == "" { // the predicted rates are those of the device's library
				rate.predict(flops/1e12, r.machine.ProductSeconds(rates.Product{M: n, N: n, K: n, TransA: m.TransA, TransB: m.TransB}, device.BF16, false))
			}
		}
		c.Detail = fmt.Sprintf("bf16 beside fp32: worst element %.2f of what is allowed%s", worst/productBound(n), size.said)
		r.add(c)
	}
	return nil
}

// maker is a device that computes products in a check. name is appended to its lines in the report.
type maker struct {
	name string
	lab  *lab
}

// multiply computes the product m of a and b, converted to the dtype in. It returns the fp32 result and the time that
// the device took.
func (l *lab) multiply(in device.DType, m op.MatMul, a, b []float32) ([]float32, time.Duration) {
	defer l.free()
	m.A, m.B, m.D = l.of(in, a), l.of(in, b), l.tensor(device.F32, m.M*m.N)
	if l.err != nil {
		return nil, 0
	}
	t := l.timed(func() { op.Do(l.dev, l.s, m) })
	return l.read(m.D), t
}

// longTensor scales and copies a tensor with more elements than an int32 can count. It checks the elements at both
// ends and around number 2^31, where indices of 32 bits overflow. If memory does not suffice, it reports the check as
// skipped.
func (r *SelfTestReport) longTensor(l *lab, size sizes) error {
	defer l.free()
	const part = 4096
	c := Check{Name: fmt.Sprintf("tensor of %d elements", size.elements), OK: true}
	x, y := l.tensor(device.BF16, int(size.elements)), l.tensor(device.BF16, int(size.elements))
	if lacking := (*device.OutOfMemory)(nil); errors.As(l.err, &lacking) {
		c.Detail, l.err = fmt.Sprintf("skipped: two of them take %s: %v", human.Bytes(4*size.elements), lacking), nil
		r.add(c)
		return nil
	}
	if l.err != nil {
		return l.err
	}
	l.s.Zero(x.Mem())
	l.s.Zero(y.Mem())
	places := []int64{0, min(1<<31, size.elements/2) - part/2, size.elements - part}
	given := make([]float32, part) // zero in the first and the last quarter, except at its two ends
	for i := part / 4; i < part*3/4; i++ {
		given[i] = float32(i%97 + 1)
	}
	given[0], given[part-1] = 1, 1 // so that the ends of the tensor are not zero
	for _, at := range places {
		l.write(x.Slice(at, part), given)
	}
	scaled := l.timed(func() { op.Do(l.dev, l.s, op.Scale{X: x, N: size.elements, Factor: 2}) })
	op.Do(l.dev, l.s, op.Convert{Dst: y, Src: x, N: size.elements})
	l.s.Zero(x.Mem())
	copied := l.timed(func() { l.s.CopyD2D(x.Mem(), y.Mem()) })
	for _, at := range places {
		for i, v := range l.read(x.Slice(at, part)) {
			if v != 4*given[i] {
				c.errorf("element %d is %v, want %v", at+int64(i), v, 4*given[i])
			}
		}
	}
	if l.err != nil {
		return l.err
	}
	c.Detail = fmt.Sprintf("%s: scaled, converted and copied%s", human.Bytes(2*size.elements), size.said)
	r.add(c)
	for _, x := range []struct {
		name string
		took time.Duration
	}{{"scale bf16 in place", scaled}, {"copy on the device", copied}} {
		r.rate(x.name, 4*float64(size.elements)/x.took.Seconds()/1e9, "GB/s", "read and written, %d elements, in %s%s", size.elements, took(x.took), size.said)
	}
	return nil
}

// lab runs operations of the checks on one device, with data from the host. It keeps the first
// error in err, and does nothing after an error.
type lab struct {
	dev        device.Device
	s          device.Stream
	start, end device.Event
	held       []device.Mem
	err        error
}

func newLab(dev device.Device) (*lab, error) {
	l := &lab{dev: dev}
	var err error
	if l.s, err = dev.NewStream("lab"); err != nil {
		return nil, err
	}
	for _, e := range []*device.Event{&l.start, &l.end} {
		if *e, err = dev.NewEvent(); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

// close frees everything that the lab holds.
func (l *lab) close() {
	l.free()
	for _, e := range []device.Event{l.start, l.end} {
		if e != nil {
			e.Close()
		}
	}
	_ = l.s.Close()
}

// free frees the device memory of all tensors that the lab has allocated.
func (l *lab) free() {
	if len(l.held) == 0 {
		return
	}
	_ = l.s.Sync() // readers of results see the error
	for _, m := range l.held {
		l.dev.Free(m)
	}
	l.held = nil
}

// tensor allocates a tensor of n elements of type dt on the lab's device. The lab frees it in free.
func (l *lab) tensor(dt device.DType, n int) device.Tensor {
	if l.err != nil {
		return device.Tensor{DType: dt}
	}
	bytes := int64(n) * dt.Size()
	mem, err := l.dev.Alloc(accounts.Workspace, bytes)
	if l.err = err; err != nil {
		return device.Tensor{DType: dt}
	}
	l.held = append(l.held, mem)
	return mem.Tensor(dt, 0, int64(n))
}

// of returns a new tensor of type dt on the lab's device with the given values.
func (l *lab) of(dt device.DType, values []float32) device.Tensor {
	t := l.tensor(dt, len(values))
	l.write(t, values)
	return t
}

// indices returns a device tensor of int32.
func (l *lab) indices(values []int32) device.Tensor {
	t := l.tensor(device.I32, len(values))
	l.host(t, func(b []byte) {
		for i, v := range values {
			binary.NativeEndian.PutUint32(b[4*i:], uint32(v))
		}
		l.s.CopyH2D(t.Mem(), b)
	})
	return t
}

// write copies values to t, converted to t's dtype.
func (l *lab) write(t device.Tensor, values []float32) {
	l.host(t, func(b []byte) {
		for i, v := range values {
			if t.DType == device.BF16 {
				binary.NativeEndian.PutUint16(b[2*i:], bf16.Round(v))
			} else {
				binary.NativeEndian.PutUint32(b[4*i:], math.Float32bits(v))
			}
		}
		l.s.CopyH2D(t.Mem(), b)
	})
}

// read copies t to the host.
func (l *lab) read(t device.Tensor) (values []float32) {
	values = make([]float32, t.Len)
	l.host(t, func(b []byte) {
		l.s.CopyD2H(b, t.Mem())
		if l.s.Sync() != nil {
			return // host records the error
		}
		for i := range values {
			if t.DType == device.BF16 {
				values[i] = bf16.Widen(binary.NativeEndian.Uint16(b[2*i:]))
			} else {
				values[i] = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
			}
		}
	})
	return values
}

// host allocates host memory of t's size and calls f with it. The function f enqueues a copy
// between this memory and t. Then host waits for the copy and frees the memory.
func (l *lab) host(t device.Tensor, f func(b []byte)) {
	if l.err != nil {
		return
	}
	b, err := l.dev.AllocHost(t.Mem().Bytes)
	if l.err = err; err != nil {
		return
	}
	f(b)
	l.err = l.s.Sync()
	l.dev.FreeHost(b)
}

// timed runs the work that f enqueues twice, and returns the device time of the second run.
func (l *lab) timed(f func()) time.Duration {
	for range 2 {
		if l.err == nil {
			l.s.Record(l.start)
			f()
			l.s.Record(l.end)
			l.err = l.s.Sync()
		}
	}
	if l.err != nil {
		return 1
	}
	return max(l.end.Elapsed(l.start), 1)
}

// uniform returns n random numbers in [-most, most) that bf16 represents exactly, so that both dtypes compute on equal
// inputs.
func uniform(rng *rand.Rand, n int, most float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = bf16.Widen(bf16.Round(most * (2*rng.Float32() - 1)))
	}
	return out
}

// elementsDiffer returns the largest difference between elements of got and want (off), and its index (at). NaN counts
// as an infinite difference.
func elementsDiffer(got, want []float32) (at int, off float64) {
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		if d > off {
			at, off = i, d
		}
	}
	return at, off
}

// rowsDiffer compares got and want as rows of n elements. It returns the largest difference of two rows (off) and the
// row's index (at). The difference is the norm of the rows' difference, divided by the norm of the row plus the mean
// norm of rows.
func rowsDiffer(got, want []float32, n int) (at int, off float64) {
	norm := func(x func(i int) float64) float64 {
		sum := 0.0
		for i := range n {
			sum += x(i) * x(i)
		}
		return math.Sqrt(sum)
	}
	rows, mean := len(want)/n, 0.0
	for r := range rows {
		mean += norm(func(i int) float64 { return float64(want[r*n+i]) }) / float64(rows)
	}
	for r := range rows {
		own := norm(func(i int) float64 { return float64(want[r*n+i]) })
		d := norm(func(i int) float64 { return float64(got[r*n+i]) - float64(want[r*n+i]) }) / (own + mean)
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		if d > off {
			at, off = r, d
		}
	}
	return at, off
}

// took formats a duration for the report, rounded to about a thousandth of itself.
func took(d time.Duration) string { return d.Round(d/1000 + 1).String() }
