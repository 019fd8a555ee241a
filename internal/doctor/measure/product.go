package measure

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/op"
)

// Product is the shape of a matrix product D = op(A)·op(B). D has M rows and N columns, K is the
// summed dimension, and op transposes if TransA or TransB is set.
type Product struct {
	M, N, K        int
	TransA, TransB bool
	DType          device.DType // of A, B and D
	// Accumulate adds to an fp32 D, like a weight gradient.
	Accumulate bool
}

// FLOPs returns 2·M·N·K.
func (p Product) FLOPs() float64 { return 2 * float64(p.M) * float64(p.N) * float64(p.K) }

// Bytes returns the device memory that the measurement allocates.
func (p Product) Bytes() int64 {
	size := p.DType.Size()
	d := size
	if p.Accumulate {
		d = 4
	}
	return size*(int64(p.M)*int64(p.K)+int64(p.K)*int64(p.N)) + d*int64(p.M)*int64(p.N) + 3*device.Align
}

func (p Product) String() string {
	name := [2][2]string{{"AB", "ABᵀ"}, {"AᵀB", "AᵀBᵀ"}}
	return fmt.Sprintf("%d×%d×%d %s %s", p.M, p.N, p.K, name[index(p.TransA)][index(p.TransB)], p.DType)
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Product measures one shape. The error is a *device.OutOfMemory if memory does not suffice.
func (m *Meter) Product(p Product) (Seconds, error) {
	if p.M < 1 || p.N < 1 || p.K < 1 {
		return Seconds{}, fmt.Errorf("measure: product %s: want extents of at least 1", p)
	}
	o := op.MatMul{M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB}
	out := p.DType
	if p.Accumulate {
		out = device.F32
	}
	a := memory{m: m}
	a.want(p.DType, p.M*p.K, &o.A)
	a.want(p.DType, p.K*p.N, &o.B)
	a.want(out, p.M*p.N, &o.D)
	mem, err := a.take()
	if err != nil {
		return Seconds{}, fmt.Errorf("measure: product %s: %w", p, err)
	}
	defer m.dev.Free(mem)
	if p.Accumulate {
		o.C = o.D
	}
	t, err := m.enqueued(func() { op.Do(m.dev, m.s, o) })
	if err != nil {
		return Seconds{}, fmt.Errorf("measure: product %s: %w", p, err)
	}
	return t, nil
}

// Attention is the shape of causal attention: Tokens tokens in sequences of Length. The last sequence is shorter if
// Length does not divide Tokens.
type Attention struct {
	Tokens, Length      int
	Heads, KVHeads, Dim int
	Window              int // 0: none
	DType               device.DType
	Backward            bool
}

// FLOPs counts unmasked (query, key) pairs: two products in the forward and five in the backward, each with 2·Dim
// FLOPs per pair.
func (a Attention) FLOPs() float64 {
	products := 2.0
	if a.Backward {
		products = 5
	}
	var pairs float64
	for left := a.Tokens; left > 0; left -= a.Length {
		n, w := float64(min(left, a.Length)), float64(min(left, a.Length))
		if a.Window > 0 {
			w = min(w, float64(a.Window))
		}
		pairs += w*(w+1)/2 + (n-w)*w
	}
	return products * 2 * pairs * float64(a.Heads) * float64(a.Dim)
}

func (a Attention) String() string {
	way := "forward"
	if a.Backward {
		way = "backward"
	}
	return fmt.Sprintf("%s of %d tokens in sequences of %d, %d/%d heads of %d, %s", way, a.Tokens, a.Length, a.Heads, a.KVHeads, a.Dim, a.DType)
}

func (a Attention) check() error {
	if a.Tokens < 1 || a.Length < 1 || a.Heads < 1 || a.KVHeads < 1 || a.Dim < 1 || a.Window < 0 || a.Heads%a.KVHeads != 0 {
		return fmt.Errorf("want extents of at least 1, and heads that are a multiple of the key heads")
	}
	return nil
}

// Attention measures one shape, forward or backward. The error is a *device.OutOfMemory if memory does not suffice.
func (m *Meter) Attention(a Attention) (Seconds, error) {
	if err := a.check(); err != nil {
		return Seconds{}, fmt.Errorf("measure: attention %s: %w", a, err)
	}
	a.Length = min(a.Length, a.Tokens)
	seqs := (a.Tokens + a.Length - 1) / a.Length
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	f := op.Attention{QStride: wide, KStride: narrow, AttentionShape: op.AttentionShape{Seqs: seqs, TQ: a.Tokens, TK: a.Tokens, MaxQ: a.Length,
		MaxK: a.Length, Heads: a.Heads, KVHeads: a.KVHeads, Dim: a.Dim, Scale: float32(1 / math.Sqrt(float64(a.Dim))), Window: a.Window}}
	b := op.AttentionBackward{QStride: wide, KStride: narrow, DQStride: wide, DKStride: narrow}
	mems := memory{m: m}
	mems.filled(&f.CuQ, device.I32, seqs+1, func(i int) float64 { return float64(min(i*a.Length, a.Tokens)) })
	mems.want(a.DType, a.Tokens*wide, &f.Q, &f.O)
	mems.want(a.DType, a.Tokens*narrow, &f.K, &f.V)
	mems.want(device.F32, a.Tokens*a.Heads, &f.LSE)
	if a.Backward {
		mems.want(a.DType, a.Tokens*wide, &b.DQ, &b.DO)
		mems.want(a.DType, a.Tokens*narrow, &b.DK, &b.DV)
		mems.want(device.F32, a.Tokens*a.Heads, &b.Delta)
		if n := f.SumsLen(); n > 0 && a.DType == device.BF16 {
			mems.want(device.F32, n, &b.Sums)
		}
	}
	mem, err := mems.take()
	if err != nil {
		return Seconds{}, fmt.Errorf("measure: attention %s: %w", a, err)
	}
	defer m.dev.Free(mem)
	f.CuK = f.CuQ
	call := func() { op.Do(m.dev, m.s, f) }
	if a.Backward {
		call() // the forward pass computes O and LSE
		b.AttentionShape, b.O, b.LSE, b.Q, b.K, b.V = f.AttentionShape, f.O, f.LSE, f.Q, f.K, f.V
		call = func() { op.Do(m.dev, m.s, b) }
	}
	t, err := m.enqueued(call)
	if err != nil {
		return Seconds{}, fmt.Errorf("measure: attention %s: %w", a, err)
	}
	return t, nil
}
