package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"mt/base/accounts"
	"mt/base/bf16"
	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// attentionCase is a shape of attention. The cases below cross the edges of tiles, which are 32, 64
// or 128 wide.
type attentionCase struct {
	queries, keys  []int // nil keys: the same as queries
	heads, kvHeads int
	dim, window    int
	beyond, at     int     // beyond: padding of strides; at: offset of tensors from an aligned address
	spike          int     // key that gets almost all weight of every query; 0: none
	climb          float64 // factor (log2) by which weights grow from a key to the one before, forward only; 0: none
	softcap        float64
}

func (c attentionCase) String() string {
	return fmt.Sprintf("%v,%v,heads %d of %d,dim %d,window %d,beyond %d,at %d,climb %v,softcap %v", c.queries, c.keys, c.kvHeads, c.heads, c.dim, c.window,
		c.beyond, c.at, c.climb, c.softcap)
}

var attentionCases = []attentionCase{
	{queries: []int{127, 1, 128, 129}, heads: 2, kvHeads: 1, dim: 64, beyond: 8},
	{queries: []int{47, 49, 0, 63, 65}, heads: 2, kvHeads: 2, dim: 64, at: 8},
	{queries: []int{129, 97}, heads: 2, kvHeads: 1, dim: 96, beyond: 16},
	{queries: []int{65, 128}, heads: 2, kvHeads: 1, dim: 96, beyond: 8, at: 1},
	{queries: []int{193}, heads: 2, kvHeads: 1, dim: 128},
	{queries: []int{48, 144}, heads: 1, kvHeads: 1, dim: 128, beyond: 7},
	{queries: []int{33, 64, 65}, heads: 2, kvHeads: 2, dim: 256, beyond: 8},
	{queries: []int{70}, heads: 1, kvHeads: 1, dim: 200},
	{queries: []int{65, 1, 0, 33}, heads: 2, kvHeads: 1, dim: 512, beyond: 8},
	{queries: []int{40, 17}, heads: 1, kvHeads: 1, dim: 320, at: 1},
	{queries: []int{66, 5}, heads: 7, kvHeads: 1, dim: 64, window: 50},
	{queries: []int{200}, heads: 2, kvHeads: 1, dim: 80, window: 64},
	{queries: []int{257}, heads: 1, kvHeads: 1, dim: 104, window: 65},
	{queries: []int{150}, heads: 1, kvHeads: 1, dim: 136, window: 33},
	// Windows that end at the edge of a tile.
	{queries: []int{200}, heads: 1, kvHeads: 1, dim: 64, window: 2},
	{queries: []int{200}, heads: 1, kvHeads: 1, dim: 128, window: 2},
	{queries: []int{256}, heads: 1, kvHeads: 1, dim: 128, window: 191, spike: 64}, // the first position that does not attend to it is a tile's last
	// Cases in which the last query of a warp sees only the first key of some tile.
	{queries: []int{130}, keys: []int{131}, heads: 1, kvHeads: 1, dim: 128, spike: 64},
	{queries: []int{130}, keys: []int{131}, heads: 1, kvHeads: 1, dim: 256, spike: 64},
	{queries: []int{130}, keys: []int{131}, heads: 1, kvHeads: 1, dim: 128, window: 2},
	{queries: []int{130}, keys: []int{131}, heads: 1, kvHeads: 1, dim: 256, window: 2},
	{queries: []int{66}, keys: []int{67}, heads: 1, kvHeads: 1, dim: 512, window: 2},
	{queries: []int{97}, heads: 1, kvHeads: 1, dim: 264, window: 33},
	// Maxima that grow slowly and quickly over the tiles, which are processed from the last on.
	{queries: []int{300}, heads: 1, kvHeads: 1, dim: 64, climb: 0.05},
	{queries: []int{192}, heads: 1, kvHeads: 1, dim: 96, climb: 0.2},
	{queries: []int{192}, heads: 1, kvHeads: 1, dim: 128, climb: 0.2},
	{queries: []int{192}, heads: 1, kvHeads: 1, dim: 256, climb: 0.15},
	{queries: []int{96}, heads: 1, kvHeads: 1, dim: 512, climb: 0.3},
	{queries: []int{5, 34, 1}, keys: []int{4, 33, 0}, heads: 2, kvHeads: 1, dim: 400}, // the first queries attend to no key
	{queries: []int{1, 3}, keys: []int{90, 33}, heads: 2, kvHeads: 1, dim: 512},
	{queries: []int{1, 3}, keys: []int{300, 129}, heads: 2, kvHeads: 1, dim: 96},
	{queries: []int{130}, keys: []int{200}, heads: 2, kvHeads: 1, dim: 64, window: 48},
	{queries: []int{0, 2}, keys: []int{65, 128}, heads: 2, kvHeads: 2, dim: 128},
	{queries: []int{5, 66, 1}, keys: []int{4, 65, 0}, heads: 2, kvHeads: 1, dim: 72}, // the first queries attend to no key
	{queries: []int{130}, keys: []int{129}, heads: 1, kvHeads: 1, dim: 128, window: 10},
	// Softcaps small enough to change scores of a few units.
	{queries: []int{127, 1, 129}, heads: 2, kvHeads: 1, dim: 128, beyond: 8, softcap: 2},
	{queries: []int{33, 65}, heads: 1, kvHeads: 1, dim: 256, beyond: 8, softcap: 1},
	{queries: []int{70}, heads: 1, kvHeads: 1, dim: 200, at: 1, softcap: 3},
	{queries: []int{150}, heads: 1, kvHeads: 1, dim: 136, window: 33, softcap: 2},
	{queries: []int{66, 5}, heads: 3, kvHeads: 1, dim: 64, window: 50, softcap: 30},
	{queries: []int{5, 66, 1}, keys: []int{4, 65, 0}, heads: 2, kvHeads: 1, dim: 72, softcap: 2},
	{queries: []int{130}, keys: []int{200}, heads: 1, kvHeads: 1, dim: 128, window: 48, softcap: 1.5},
	{queries: []int{192}, heads: 1, kvHeads: 1, dim: 128, climb: 0.2, softcap: 20},
	{queries: []int{192}, heads: 1, kvHeads: 1, dim: 256, climb: 0.15, softcap: 20},
	{queries: []int{33, 20}, heads: 1, kvHeads: 1, dim: 512, softcap: 2},
	{queries: []int{70}, heads: 1, kvHeads: 1, dim: 328, window: 33, softcap: 1},
	// Windows of one key, of all keys and of more than there are.
	{queries: []int{70, 3}, heads: 1, kvHeads: 1, dim: 128, window: 1, softcap: 2},
	{queries: []int{70, 3}, heads: 1, kvHeads: 1, dim: 256, window: 1},
	{queries: []int{70, 3}, heads: 1, kvHeads: 1, dim: 96, window: 1},
	{queries: []int{129, 3}, heads: 1, kvHeads: 1, dim: 64, window: 129},
	{queries: []int{70, 3}, heads: 1, kvHeads: 1, dim: 256, window: 1<<31 - 1, softcap: 2},
	{queries: []int{40, 3}, keys: []int{129, 70}, heads: 1, kvHeads: 1, dim: 64, window: 1},
	{queries: []int{40, 3}, keys: []int{129, 70}, heads: 1, kvHeads: 1, dim: 128, window: 1<<31 - 1},
}

func TestAttentionTiles(t *testing.T) {
	if testkit.Race {
		t.Skip("slow under the race detector, for which TestOp runs the same interpreter")
	}
	dev := newRig()
	for _, dt := range []device.DType{device.BF16, device.F32} {
		for i, c := range attentionCases {
			if testing.Short() && i%10 != 1 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", dt, c), func(t *testing.T) {
				if dt == device.F32 {
					testkit.Drawn(t, 3)
				} else if i%3 != 1 {
					testkit.LongOnly(t)
				}
				newAttentionRun(t, dev, dt, c).check()
			})
		}
	}
}

// attentionRun is one attention case with its tensors on the rig, the emulated device.
type attentionRun struct {
	t     *testing.T
	dev   *rig
	s     *rigStream
	rng   *rand.Rand
	dt    device.DType
	c     attentionCase
	o     oracle.Shape
	shape op.AttentionShape
	tk    int
}

func newAttentionRun(t *testing.T, dev *rig, dt device.DType, c attentionCase) *attentionRun {
	keys := c.keys
	if keys == nil {
		keys = c.queries
	}
	r := &attentionRun{t: t, dev: dev, s: &rigStream{rig: dev}, rng: rand.New(rand.NewPCG(3, 5)), dt: dt, c: c}
	r.o = oracle.Shape{Heads: c.heads, KVHeads: c.kvHeads, Dim: c.dim, Scale: float64(float32(1 / math.Sqrt(float64(c.dim)))), Window: c.window, Softcap: c.softcap,
		QStride: c.heads*c.dim + c.beyond, KStride: c.kvHeads*c.dim + 2*c.beyond,
		DQStride: c.heads*c.dim + 2*c.beyond, DKStride: c.kvHeads*c.dim + c.beyond}
	r.shape = op.AttentionShape{Seqs: len(keys), Heads: c.heads, KVHeads: c.kvHeads, Dim: c.dim, Window: c.window, Scale: float32(r.o.Scale),
		Softcap: float32(c.softcap)}
	var cu [2][]int32
	for i, lengths := range [][]int{c.queries, keys} {
		cu[i] = []int32{0}
		for j, n := range lengths {
			cu[i] = append(cu[i], cu[i][j]+int32(n))
		}
	}
	r.o.CuQ, r.o.CuK = cu[0], cu[1]
	r.shape.CuQ, r.shape.CuK = r.ints(cu[0]), r.ints(cu[1])
	r.o.TQ, r.tk = int(cu[0][len(keys)]), int(cu[1][len(keys)])
	r.shape.TQ, r.shape.TK = r.o.TQ, r.tk
	for i, n := range c.queries {
		r.shape.MaxQ, r.shape.MaxK = max(r.shape.MaxQ, n), max(r.shape.MaxK, keys[i])
	}
	return r
}

func (r *attentionRun) alloc(dt device.DType, n, at int) device.Tensor {
	size := dt.Size()
	mem, err := r.dev.Alloc(accounts.Workspace, int64(n+at)*size)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.dev.Free(mem) })
	return mem.Tensor(dt, int64(at)*size, int64(n))
}

func (r *attentionRun) ints(v []int32) device.Tensor {
	t := r.alloc(device.I32, len(v), 0)
	if _, err := binary.Encode(r.dev.bytes(t.Mem()), binary.LittleEndian, v); err != nil {
		r.t.Fatal(err)
	}
	return t
}

// put stores v, rounded to t's type, in the device memory of t, and returns the rounded values.
func (r *attentionRun) put(t device.Tensor, v []float64) []float64 {
	b := r.dev.bytes(t.Mem())
	for i, x := range v {
		if t.DType == device.BF16 {
			binary.LittleEndian.PutUint16(b[2*i:], bf16.Round(float32(x)))
		} else {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(x)))
		}
	}
	return r.get(t)
}

func (r *attentionRun) get(t device.Tensor) []float64 {
	b, v := r.dev.bytes(t.Mem()), make([]float64, t.Len)
	for i := range v {
		if t.DType == device.BF16 {
			v[i] = float64(bf16.Widen(binary.LittleEndian.Uint16(b[2*i:])))
		} else {
			v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return v
}

// random makes a tensor of random elements of the compute type and returns it with its values. Rows
// are stride elements long. The first width elements of a row belong to heads, and the rest are
// NaN.
func (r *attentionRun) random(rows, stride, width int) (device.Tensor, []float64) {
	t, v := r.alloc(r.dt, rows*stride, r.c.at), make([]float64, rows*stride)
	for i := range v {
		v[i] = r.rng.NormFloat64()
		if i%stride >= width {
			v[i] = math.NaN()
		}
	}
	return t, r.put(t, v)
}

// same compares got with want in the first width elements of rows of stride elements. The allowed error is bound
// times the largest element, or times least if that is larger. All other elements of got must keep their initial NaN.
func (r *attentionRun) same(name string, got device.Tensor, want []float64, stride, width int, bound, least float64) {
	r.t.Helper()
	size := least
	for i, w := range want {
		if i%stride < width && !math.IsInf(w, 0) {
			size = max(size, math.Abs(w))
		}
	}
	for i, g := range r.get(got) {
		if i%stride >= width {
			if g == g {
				r.t.Fatalf("%s[%d], beyond its rows, was written", name, i)
			}
			continue
		}
		if w := want[i]; !(math.Abs(g-w) <= bound*size) && g != w {
			r.t.Fatalf("%s[%d] is %v, want %v: error %.3g, allowed %.3g of %.3g", name, i, g, w, math.Abs(g-w), bound, size)
		}
	}
}

// bound returns the allowed relative error of a result that sums n products. It has the form of the
// bounds in the conformance tests: fp32 rounding of n terms, and in bf16 also the given number of
// roundings to bf16.
func (r *attentionRun) bound(n, roundings int) float64 {
	b := 8 * (8 + math.Sqrt(float64(n))) / (1 << 24)
	if r.dt == device.BF16 {
		b += float64(roundings) * 1.01 / (1 << 8)
	}
	return b
}

// backwards returns the variants of the backward to run: with and without memory for sums, and with
// more shared memory. All variants of one kernel must give the same bits. Long tests run each
// variant twice.
func (r *attentionRun) backwards(sums device.Tensor) []backwardBy {
	whole := backwardBy{sums: sums, shared: 163 << 10} // no bit depends on how much shared memory there is
	switch all := []backwardBy{{}, {sums: sums}, whole, {}, {sums: sums}}; {
	case testkit.LongAsked():
		return all
	case kernels.Summed(&op.AttentionBackward{AttentionShape: r.shape, Q: device.Tensor{DType: r.dt}, Sums: sums}):
		return all[:3]
	default:
		return all[:2]
	}
}

// backwardBy is one variant of a backward: its memory for sums, if any, and the GPU's shared memory
// in bytes.
type backwardBy struct {
	sums   device.Tensor
	shared int
}

// check compares the forward and all variants of the backward with the oracle.
func (r *attentionRun) check() {
	c, dim := r.c, r.c.dim
	wide, narrow := c.heads*dim, c.kvHeads*dim
	q, qv := r.random(r.o.TQ, r.o.QStride, wide)
	k, kv := r.random(r.tk, r.o.KStride, narrow)
	if c.spike > 0 {
		for i := range qv {
			qv[i] = 1
		}
		for i := range c.dim {
			kv[c.spike*r.o.KStride+i] = 1
		}
		r.put(q, qv)
		r.put(k, kv)
	}
	if c.climb > 0 { // a score is one product, up to 27; the bound includes its rounding
		for i := range qv {
			qv[i] = 0
			if i%dim == 0 {
				qv[i] = 1
			}
		}
		for i := 0; i < len(kv); i += dim {
			kv[i] = c.climb * float64(r.tk-i/dim) * math.Ln2 / r.o.Scale
		}
		qv, kv = r.put(q, qv), r.put(k, kv)
	}
	v, vv := r.random(r.tk, r.o.KStride, narrow)
	do, dov := r.random(r.o.TQ, wide, wide)
	rows := r.o.TQ * c.heads
	o, lse, delta := r.alloc(r.dt, rows*dim, c.at), r.alloc(device.F32, rows, 0), r.alloc(device.F32, rows, 0)
	wantO, wantL := make([]float64, rows*dim), make([]float64, rows)
	oracle.Attention(wantO, wantL, qv, kv, vv, r.o)
	kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, LSE: lse, Q: q, K: k, V: v, QStride: r.o.QStride, KStride: r.o.KStride})
	r.ok()
	r.same("O", o, wantO, dim, dim, r.bound(dim, 2), 0)
	r.same("LSE", lse, wantL, 1, 1, 8*(8+math.Sqrt(float64(dim)))/(1<<24), 1)
	if c.climb > 0 {
		return
	}

	ov, lv := r.put(o, wantO), r.put(lse, wantL)
	wantQ, wantK, wantV := make([]float64, r.o.TQ*r.o.DQStride), make([]float64, r.tk*r.o.DKStride), make([]float64, r.tk*r.o.DKStride)
	oracle.AttentionBackward(wantQ, wantK, wantV, dov, ov, lv, qv, kv, vv, r.o)
	sums := r.alloc(device.F32, r.shape.SumsLen(), 0)
	first := map[bool][3][]byte{} // gradients, by whether they were summed
	for _, by := range r.backwards(sums) {
		r.dev.shared = by.shared
		dq, dk, dv := r.alloc(r.dt, len(wantQ), c.at), r.alloc(r.dt, len(wantK), c.at), r.alloc(r.dt, len(wantV), c.at)
		a := &op.AttentionBackward{AttentionShape: r.shape, DQ: dq, DK: dk, DV: dv, DO: do, O: o, LSE: lse,
			Q: q, K: k, V: v, QStride: r.o.QStride, KStride: r.o.KStride, DQStride: r.o.DQStride, DKStride: r.o.DKStride, Delta: delta, Sums: by.sums}
		kernels.AttentionBackward(r.s, a)
		r.ok()
		summed := kernels.Summed(a)
		bound := r.bound(dim+r.shape.MaxQ, 3) // the roundings of P, of dS and of the result
		r.same("DQ", dq, wantQ, r.o.DQStride, wide, bound, 1)
		r.same("DK", dk, wantK, r.o.DKStride, narrow, bound, 1)
		r.same("DV", dv, wantV, r.o.DKStride, narrow, bound, 0)
		was, now := first[summed], [3][]byte{}
		for i, d := range []device.Tensor{dq, dk, dv} {
			now[i] = bytes.Clone(r.dev.bytes(d.Mem()))
			if was[i] != nil && !bytes.Equal(was[i], now[i]) {
				r.t.Fatalf("gradient %d differs from run to run", i)
			}
		}
		first[summed] = now
	}
}

func (r *attentionRun) ok() {
	r.t.Helper()
	if r.s.err != nil {
		r.t.Fatal(r.s.err)
	}
}

// TestAttentionNaN: a NaN in the input appears in the result; no maximum or mask hides it.
func TestAttentionNaN(t *testing.T) {
	testkit.NotShort(t)
	for _, dt := range []device.DType{device.F32, device.BF16} {
		for _, dim := range []int{64, 256} {
			r := newAttentionRun(t, newRig(), dt, attentionCase{queries: []int{70}, heads: 1, kvHeads: 1, dim: dim})
			q, qv := r.random(70, dim, dim)
			k, _ := r.random(70, dim, dim)
			v, _ := r.random(70, dim, dim)
			const row = 66
			qv[row*dim+5] = math.NaN()
			r.put(q, qv)
			o := r.alloc(dt, 70*dim, 0)
			kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, Q: q, K: k, V: v, QStride: dim, KStride: dim})
			r.ok()
			for i, x := range r.get(o) {
				if (i/dim == row) != math.IsNaN(x) {
					t.Fatalf("%v: row %d has %v", dt, i/dim, x)
				}
			}
		}
	}
}

// TestAttentionExponents: the backward's probabilities are those of the forward up to the rounding of LSE. A query sees
// one key, with a score of some millions, so a unit in the last place of LSE is a large part of a probability.
func TestAttentionExponents(t *testing.T) {
	for _, dim := range []int{32, 64, 96, 128, 192, 256, 512} {
		for _, c := range []struct {
			dt    device.DType
			cap   float64
			sm90a bool
		}{{dt: device.BF16}, {dt: device.BF16, cap: 1 << 21}, {dt: device.BF16, sm90a: true}, {dt: device.F32}, {dt: device.F32, cap: 1 << 21}} {
			if testing.Short() && (dim != 64 || c.cap > 0) {
				continue
			}
			t.Run(fmt.Sprintf("%v,dim %d,softcap %v,sm90a %v", c.dt, dim, c.cap, c.sm90a), func(t *testing.T) {
				dev := newRig()
				dev.sm90a = c.sm90a
				newAttentionRun(t, dev, c.dt, attentionCase{queries: []int{70}, heads: 1, kvHeads: 1, dim: dim, window: 1, softcap: c.cap}).exponents()
			})
		}
	}
}

// exponents checks DV, which is P for DO = 1. A score is one product, so all kernels compute the same scores.
func (r *attentionRun) exponents() {
	r.shape.Scale = 1 << 20
	n, dim, one := r.tk, r.c.dim, make([]float64, r.tk*r.c.dim)
	for i := range one {
		one[i] = 1
	}
	q, qv := r.random(n, dim, dim)
	clear(qv)
	for i := 0; i < len(qv); i += dim {
		qv[i] = 1
	}
	r.put(q, qv)
	k, _ := r.random(n, dim, dim)
	v, do, o := r.alloc(r.dt, n*dim, 0), r.alloc(r.dt, n*dim, 0), r.alloc(r.dt, n*dim, 0)
	r.put(v, one)
	r.put(do, one)
	lse, delta, sums := r.alloc(device.F32, n, 0), r.alloc(device.F32, n, 0), r.alloc(device.F32, r.shape.SumsLen(), 0)
	kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, LSE: lse, Q: q, K: k, V: v, QStride: dim, KStride: dim})
	lv := r.get(lse)
	for _, by := range r.backwards(sums) {
		r.dev.shared = by.shared
		dq, dk, dv := r.alloc(r.dt, n*dim, 0), r.alloc(r.dt, n*dim, 0), r.alloc(r.dt, n*dim, 0)
		kernels.AttentionBackward(r.s, &op.AttentionBackward{AttentionShape: r.shape, DQ: dq, DK: dk, DV: dv, DO: do, O: o, LSE: lse,
			Q: q, K: k, V: v, QStride: dim, KStride: dim, DQStride: dim, DKStride: dim, Delta: delta, Sums: by.sums})
		r.ok()
		for i, p := range r.get(dv) {
			l := float32(lv[i/dim])
			unit := math.Abs(float64(math.Nextafter32(l, 2*l) - l))
			if off := math.Abs(math.Log2(p)); !(off <= unit/2+0.01) { // P and DV are rounded to bf16
				r.t.Fatalf("LSE %v: a probability is 2^%.3f", l, math.Log2(p))
			}
		}
	}
}
