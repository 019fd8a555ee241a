package rates

import (
	"math"
	"testing"

	"mt/device"
	"mt/device/op"
)

func tensor(dt device.DType, n int) device.Tensor {
	return device.Tensor{Addr: 1, Len: int64(n), DType: dt}
}

func product(m, n, k int, transA, transB bool) *op.MatMul {
	return &op.MatMul{M: m, N: n, K: k, TransA: transA, TransB: transB, A: tensor(device.BF16, m*k), B: tensor(device.BF16, k*n), D: tensor(device.BF16, m*n)}
}

// TestBetween: interpolation returns a measured entry's own value at distance 0, and the geometric
// mean of two entries halfway between them.
func TestBetween(t *testing.T) {
	for _, c := range []struct {
		entries [][2]float64 // distance, value
		want    float64
	}{{[][2]float64{{0, 8}, {1, 2}}, 8}, {[][2]float64{{1, 8}, {0, 2}}, 2}, {[][2]float64{{0.5, 8}, {0.5, 2}}, 4}} {
		got := between(2, func(i int) (float64, float64) { return c.entries[i][0], c.entries[i][1] })
		if math.Abs(got-c.want) > 1e-12 { // a few roundings of numbers up to 8
			t.Errorf("%v: %g, want %g", c.entries, got, c.want)
		}
	}
}

// TestProducts: a matrix product of a measured shape takes the measured time, and a shape between
// two takes a time between theirs. A product that memory traffic limits takes the time of that
// traffic.
func TestProducts(t *testing.T) {
	m := &Machine{Device: Device{Bandwidth: 1000, Launch: 1, Products: map[string][]Product{"bf16": {
		{M: 512, N: 512, K: 512, Rate: 10}, {M: 2048, N: 2048, K: 2048, Rate: 40}, {M: 512, N: 512, K: 512, TransB: true, Rate: 20}}}}}
	rate := func(p *op.MatMul) float64 {
		return 2 * float64(p.M) * float64(p.N) * float64(p.K) / (NewCosts(m).Op(p).Seconds - 1e-6) / 1e12
	}
	for _, tc := range []struct {
		p           *op.MatMul
		least, most float64
	}{
		{product(512, 512, 512, false, false), 10, 10}, {product(2048, 2048, 2048, false, false), 40, 40}, {product(512, 512, 512, false, true), 20, 20},
		{product(1024, 1024, 1024, false, false), 15, 30}, {product(8192, 8192, 8192, false, false), 30, 40}, {product(512, 512, 512, true, false), 10, 20},
	} {
		if got := rate(tc.p); got < tc.least-1e-6 || got > tc.most+1e-6 {
			t.Errorf("%d×%d×%d: %g TFLOP/s, want %g to %g", tc.p.M, tc.p.N, tc.p.K, got, tc.least, tc.most)
		}
	}
	thin := product(1<<20, 1, 512, false, false)
	if got, want := NewCosts(m).Op(thin).Seconds, 1e-6+float64(thin.Bytes())/1e12; math.Abs(got-want) > 1e-9 {
		t.Errorf("a thin product takes %g s, want %g", got, want)
	}
	m.Device.Products = map[string][]Product{"bf16": {{Rate: 100}}}
	if got := rate(product(4096, 4096, 4096, false, true)); math.Abs(got-100) > 1e-6 {
		t.Errorf("full tiles at 100 TFLOP/s reach %g", got)
	}
	if got := rate(product(64*64, 4096+64, 4096, false, true)); got >= 99 || got < 95 {
		t.Errorf("tiles that are not full reach %g", got)
	}
	f32 := product(256, 256, 256, false, true)
	f32.A.DType = device.F32
	if got := NewCosts(m).Op(f32).Seconds; !(got > 0 && got < 1) {
		t.Errorf("a product of a dtype without rates takes %g s", got)
	}
}

// TestAttentionCosts: the time of attention grows with the (query, key) pairs, and a backward
// counts five matrix products.
func TestAttentionCosts(t *testing.T) {
	m := &Machine{Device: Device{Bandwidth: 1e5, Attention: map[string][]Attention{"bf16": {{Length: 1024, Dim: 128, Forward: 100, Backward: 50}, {Length: 8192, Dim: 128, Forward: 300, Backward: 200}}}}}
	shape := func(tokens, seqs, window int) op.AttentionShape {
		return op.AttentionShape{Seqs: seqs, TQ: tokens, TK: tokens, MaxQ: tokens / seqs, MaxK: tokens / seqs, Heads: 8, KVHeads: 8, Dim: 128, Window: window}
	}
	x := tensor(device.BF16, 1)
	for _, tc := range []struct {
		what string
		o    device.Op
		want float64
	}{
		{"forward", &op.Attention{AttentionShape: shape(1024, 1, 0), Q: x}, 4 * 128 * 8 * 1024 * 1025 / 2 / 100e12},
		{"backward", &op.AttentionBackward{AttentionShape: shape(8192, 1, 0), Q: x}, 10 * 128 * 8 * 8192.0 * 8193 / 2 / 200e12},
		{"in two", &op.Attention{AttentionShape: shape(2048, 2, 0), Q: x}, 2 * 4 * 128 * 8 * 1024 * 1025 / 2 / 100e12},
		{"a window as long as a measured length", &op.Attention{AttentionShape: shape(8192, 1, 1024), Q: x}, 4 * 128 * 8 * (1024*1025/2 + 7168*1024) / 100e12},
		{"nothing", &op.Attention{Q: x}, 0},
	} {
		if got := NewCosts(m).Op(tc.o).Seconds; math.Abs(got-tc.want) > 1e-6*tc.want {
			t.Errorf("%s: %g s, want %g", tc.what, got, tc.want)
		}
	}
}

// TestSparseAttentionCosts: attention costs as much less as the chosen keys are fewer, at the rate of narrow heads. It
// takes three times as long on a GPU with kernels for sm_90a.
func TestSparseAttentionCosts(t *testing.T) {
	table := map[string][]Attention{"bf16": {{Length: 64, Dim: 128, Forward: 100, Backward: 50}, {Length: 64, Dim: 512, Forward: 1, Backward: 1}}}
	c, x := NewCosts(&Machine{Device: Device{Bandwidth: 1e9, Attention: table}}), tensor(device.BF16, 1)
	shape := op.SparseShape{AttentionShape: op.AttentionShape{Seqs: 1, TQ: 4096, TK: 4096, MaxQ: 4096, MaxK: 4096, Heads: 8, KVHeads: 1, Dim: 576}, Values: 512, TopK: 64}
	const pairs = 64 * (4096 - 31.5)
	for o, want := range map[device.Op]float64{&op.SparseAttention{SparseShape: shape, Q: x}: 2 * 8 * (576 + 512) * pairs / 100e12,
		&op.SparseAttentionBackward{SparseShape: shape, Q: x}: 2 * 8 * (3*576 + 2*512) * pairs / 50e12} {
		if got := c.Op(o).Seconds; math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s: %g s, want %g", o.Name(), got, want)
		}
		hopper := NewCosts(&Machine{Device: Device{Bandwidth: 1e9, Attention: table, SM90a: true}})
		if got := hopper.Op(o).Seconds; math.Abs(got-3*want) > 1e-6*want {
			t.Errorf("%s with kernels for sm_90a: %g s, want %g", o.Name(), got, 3*want)
		}
	}
}

// TestWideAttentionCosts: rates of heads over 256 elements do not change those of narrower ones, and hold for all wider
// ones. Without them the others' rates hold.
func TestWideAttentionCosts(t *testing.T) {
	table := []Attention{{Length: 1024, Dim: 128, Forward: 100, Backward: 50}, {Length: 1024, Dim: 512, Forward: 20, Backward: 10}}
	x := tensor(device.BF16, 1)
	for _, tc := range []struct {
		table []Attention
		dim   int
		rate  float64
	}{{table, 64, 100}, {table, 256, 100}, {table, 257, 20}, {table, 512, 20}, {table[:1], 512, 100}, {table[1:], 64, 20}} {
		m := &Machine{Device: Device{Bandwidth: 1e5, Attention: map[string][]Attention{"bf16": tc.table}}}
		shape := op.AttentionShape{Seqs: 1, TQ: 1024, TK: 1024, MaxQ: 1024, MaxK: 1024, Heads: 8, KVHeads: 8, Dim: tc.dim}
		want := 4 * float64(tc.dim) * 8 * 1024 * 1025 / 2 / (tc.rate * 1e12)
		if got := NewCosts(m).Op(&op.Attention{AttentionShape: shape, Q: x}).Seconds; math.Abs(got-want) > 1e-6*want {
			t.Errorf("heads of %d, %d rates: %g s, want %g", tc.dim, len(tc.table), got, want)
		}
	}
}

// TestMoved: an operation listed in Device.Ops has the cost given there. Any other takes the launch
// time plus its bytes at the rate of device memory.
func TestMoved(t *testing.T) {
	m := &Machine{Device: Device{Bandwidth: 100, Launch: 5, Ops: map[string]Op{"GLU": {Fixed: 2, Rate: 10, Cores: 1}}}}
	c := NewCosts(m)
	if got := c.Moved("GLU", 1e6); math.Abs(got.Seconds-102e-6) > 1e-12 || got.Cores != 1 || got.Bytes != 1e6 {
		t.Errorf("GLU: %+v", got)
	}
	if got := c.Op(&op.Scale{X: tensor(device.F32, 1000), N: 1000}); math.Abs(got.Seconds-(5e-6+8000/100e9)) > 1e-12 {
		t.Errorf("Scale: %+v", got)
	}
}
