package cpu

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mt/base/accounts"
	"mt/device"
	"mt/device/op"
)

// benchShape has the sizes of a decoder block and of a micro-batch, in tokens and heads.
type benchShape struct {
	name                                             string
	seqs, length, hidden, ffn, heads, kv, dim, vocab int
}

var benchShapes = []benchShape{
	{"256", 8, 256, 256, 704, 8, 4, 32, 256},
	{"1024", 4, 512, 1024, 2816, 16, 8, 64, 4096},
}

// bench is a device with all tensors of a block, for benchmarks of its operations.
type bench struct {
	benchShape
	b    *testing.B
	dev  device.Device
	s    device.Stream
	dt   device.DType
	T    int
	seed uint32
}

func (b *bench) tensor(dt device.DType, n int) device.Tensor {
	mem, err := b.dev.Alloc(accounts.Workspace, int64(n)*dt.Size())
	if err != nil {
		b.b.Fatal(err)
	}
	t := mem.Tensor(dt, 0, int64(n))
	if dt == device.I32 {
		clear(i32s(t, n))
		return t
	}
	v := make([]float32, n)
	for i := range v {
		b.seed = b.seed*1664525 + 1013904223
		v[i] = float32(int32(b.seed)) / (1 << 30)
	}
	actOf(t).put(0, v)
	return t
}

func (b *bench) act(n int) device.Tensor { return b.tensor(b.dt, n) }
func (b *bench) f32(n int) device.Tensor { return b.tensor(device.F32, n) }

func (b *bench) ints(v []int32) device.Tensor {
	t := b.tensor(device.I32, len(v))
	copy(i32s(t, len(v)), v)
	return t
}

// run is a benchmark of f, which enqueues one operation. It also reports the CPU time.
func (b *bench) run(name string, f func()) {
	b.b.Run(b.name+"/"+b.dt.String()+"/"+name, func(t *testing.B) {
		t.ReportAllocs()
		before := cpuTime(t)
		for t.Loop() {
			f()
			if err := b.s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		t.ReportMetric(float64((cpuTime(t)-before).Nanoseconds())/float64(t.N)/1e6, "cpu-ms/op")
	})
}

// cpuTime returns the CPU time of this process. On a shared machine it is steadier than wall-clock time.
func cpuTime(t *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkBlock(b *testing.B) {
	for _, dt := range []device.DType{device.F32, device.BF16} {
		for _, sh := range benchShapes {
			dev, err := New(Options{})
			if err != nil {
				b.Fatal(err)
			}
			s, err := dev.NewStream("bench")
			if err != nil {
				b.Fatal(err)
			}
			x := &bench{benchShape: sh, b: b, dev: dev, s: s, dt: dt, T: sh.seqs * sh.length}
			x.products()
			x.attention()
			x.rows()
			s.Close()
			dev.Close()
		}
	}
}

// BenchmarkGatedDelta times the gated delta rule with the heads of Qwen3-Next, which has two value
// heads for each key head.
func BenchmarkGatedDelta(b *testing.B) {
	dev, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	s, err := dev.NewStream("bench")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	x := &bench{benchShape: benchShape{name: "16 of 32"}, b: b, dev: dev, s: s, dt: device.F32}
	sh := op.DeltaShape{Cu: x.ints([]int32{0, 512}), Seqs: 1, T: 512, KeyHeads: 16, Heads: 32, KeyDim: 128, ValueDim: 128, GateStride: 64}
	qkv, gates, aLog, dtBias, o, states := x.act(sh.T*sh.Width()), x.act(sh.T*sh.GateStride), x.f32(sh.Heads), x.f32(sh.Heads), x.act(sh.T*sh.Heads*sh.ValueDim), x.f32(sh.StatesLen())
	x.run("GatedDelta", func() {
		op.Do(dev, s, op.GatedDelta{DeltaShape: sh, O: o, QKV: qkv, Gates: gates, ALog: aLog, DtBias: dtBias, States: states})
	})
	dqkv, dgates := x.act(sh.T*sh.Width()), x.act(sh.T*sh.GateStride)
	x.run("GatedDeltaBackward", func() {
		op.Do(dev, s, op.GatedDeltaBackward{DeltaShape: sh, DQKV: dqkv, DGates: dgates, DO: o, QKV: qkv, Gates: gates, ALog: aLog, DtBias: dtBias, States: states})
	})
}

// products times all matrix products of a block's forward and backward.
func (b *bench) products() {
	type product struct{ n, k int }
	all := []product{{(b.heads + 2*b.kv) * b.dim, b.hidden}, {b.hidden, b.heads * b.dim}, {2 * b.ffn, b.hidden}, {b.hidden, b.ffn}}
	x, y := b.act(b.T*2*b.ffn), b.act(b.T*2*b.ffn)
	w, dw := b.act(2*b.ffn*b.hidden), b.f32(2*b.ffn*b.hidden)
	b.run("MatMul forward", func() {
		for _, p := range all {
			op.Do(b.dev, b.s, op.MatMul{M: b.T, N: p.n, K: p.k, TransB: true, A: x, B: w, D: y})
		}
	})
	b.run("MatMul backward", func() {
		for _, p := range all {
			op.Do(b.dev, b.s, op.MatMul{M: b.T, N: p.k, K: p.n, A: x, B: w, D: y})
			op.Do(b.dev, b.s, op.MatMul{M: p.n, N: p.k, K: b.T, TransA: true, A: x, B: y, C: dw, D: dw})
		}
	})
}

func (b *bench) attention() {
	cu := make([]int32, b.seqs+1)
	for i := range cu {
		cu[i] = int32(i * b.length)
	}
	wide, narrow := b.heads*b.dim, b.kv*b.dim
	stride := wide + 2*narrow
	qkv, dqkv := b.act(b.T*stride), b.act(b.T*stride)
	part := func(t device.Tensor, off int) device.Tensor { return t.Slice(int64(off), t.Len-int64(off)) }
	sh := op.AttentionShape{CuQ: b.ints(cu), Seqs: b.seqs, TQ: b.T, TK: b.T, MaxQ: b.length, MaxK: b.length, Heads: b.heads,
		KVHeads: b.kv, Dim: b.dim, Scale: 0.18}
	sh.CuK = sh.CuQ
	f := op.Attention{AttentionShape: sh, O: b.act(b.T * wide), LSE: b.f32(b.T * b.heads), Q: qkv, K: part(qkv, wide),
		V: part(qkv, wide+narrow), QStride: stride, KStride: stride}
	g := op.AttentionBackward{AttentionShape: sh, DQ: dqkv, DK: part(dqkv, wide), DV: part(dqkv, wide+narrow),
		DO: b.act(b.T * wide), O: f.O, LSE: f.LSE, Q: f.Q, K: f.K, V: f.V, QStride: stride, KStride: stride, DQStride: stride,
		DKStride: stride, Delta: b.f32(b.T * b.heads)}
	b.run("Attention", func() { op.Do(b.dev, b.s, f) })
	b.run("AttentionBackward", func() { op.Do(b.dev, b.s, g) })
	pos := make([]int32, b.T)
	for i := range pos {
		pos[i] = int32(i % b.length)
	}
	cos, sin := b.f32(b.length*b.dim/2), b.f32(b.length*b.dim/2)
	for i := range b.length * b.dim / 2 {
		actOf(cos).put(i, []float32{0.6})
		actOf(sin).put(i, []float32{0.8})
	}
	r := op.RoPE{X: qkv, Cos: cos, Sin: sin, Pos: b.ints(pos), T: b.T,
		Heads: b.heads + b.kv, Dim: b.dim, Rotary: b.dim, Stride: stride}
	b.run("RoPE", func() { op.Do(b.dev, b.s, r) })
}

func (b *bench) rows() {
	x, y, w := b.act(b.T*b.hidden), b.act(b.T*b.hidden), b.f32(b.hidden)
	rstd, dw := b.f32(b.T), b.f32(b.hidden)
	b.run("RMSNorm", func() {
		op.Do(b.dev, b.s, op.RMSNorm{Y: y, RStd: rstd, X: x, W: w, Rows: b.T, Groups: 1, Dim: b.hidden, XStride: b.hidden,
			YStride: b.hidden, Eps: 1e-5})
	})
	dx := b.act(b.T * b.hidden)
	b.run("RMSNormBackward", func() {
		op.Do(b.dev, b.s, op.RMSNormBackward{DX: dx, DW: dw, DY: y, X: x, W: w, RStd: rstd, Rows: b.T, Groups: 1,
			Dim: b.hidden, DXStride: b.hidden, DYStride: b.hidden, XStride: b.hidden, Add: true})
	})
	gu, dgu, act := b.act(b.T*2*b.ffn), b.act(b.T*2*b.ffn), b.act(b.T*b.ffn)
	b.run("GLU", func() { op.Do(b.dev, b.s, op.GLU{Activation: op.SiLU, Y: act, GU: gu, T: b.T, F: b.ffn}) })
	b.run("GLUBackward", func() {
		op.Do(b.dev, b.s, op.GLUBackward{Activation: op.SiLU, DGU: dgu, Y: act, DY: act, GU: gu, T: b.T, F: b.ffn})
	})
	logits, targets, losses := b.act(b.T*b.vocab), b.ints(make([]int32, b.T)), b.f32(b.T)
	b.run("CrossEntropy", func() {
		op.Do(b.dev, b.s, op.CrossEntropy{Logits: logits, Targets: targets, Losses: losses, T: b.T, V: b.vocab, Scale: 1})
	})
	b.run("Convert", func() { op.Do(b.dev, b.s, op.Convert{Dst: dw, Src: w, N: int64(b.hidden)}) })
}
