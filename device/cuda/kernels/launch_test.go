package kernels_test

import (
	"strings"
	"testing"

	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// limits is a Launcher that runs nothing. It fails the test if a launch exceeds a limit of any GPU:
// of grids, blocks, parameters or shared memory.
type limits struct {
	t        *testing.T
	sm90a    bool
	launches int
	hopper   int // of kernels for sm_90a
}

func (l *limits) Launch(k *kernels.Kernel, grid, block kernels.Dim3, shared int, _ *kernels.Params) {
	l.launches++
	if grid.X == 0 || grid.X > 1<<31-1 || grid.Y == 0 || grid.Y > 65535 || grid.Z != 1 {
		l.t.Errorf("%s: grid %v", k.Name, grid)
	}
	if n := block.X * block.Y * block.Z; n == 0 || n > 1024 || n%32 != 0 {
		l.t.Errorf("%s: block %v", k.Name, block)
	}
	most := 99 << 10
	if strings.HasSuffix(k.Module, "_sm90a") {
		most = 227 << 10
		l.hopper++
		if strings.Contains(k.Name, "forward") && grid.X > 132 {
			l.t.Errorf("%s: %d blocks on 132 multiprocessors", k.Name, grid.X)
		}
	}
	if shared > k.Shared || shared > most {
		l.t.Errorf("%s: %d bytes of shared memory, the kernel says at most %d", k.Name, shared, k.Shared)
	}
}

func (l *limits) Params() *kernels.Params { return new(kernels.Params) }

func (l *limits) SM90a() bool { return l.sm90a }

// TensorMap fails the test if its arguments violate the conditions of cuTensorMapEncodeTiled.
func (l *limits) TensorMap(t device.Tensor, columns, rows, stride, boxRows int) kernels.TensorMap {
	if t.Addr%16 != 0 || stride%8 != 0 || columns < 1 || rows < 1 || boxRows < 1 || boxRows > 256 {
		l.t.Errorf("a tensor map of %d rows of %d columns at %#x, %d apart, %d at a time", rows, columns, t.Addr, stride, boxRows)
	}
	return kernels.TensorMap{}
}

func (l *limits) Slower(kernels.Lacking, int) {}

func (l *limits) SharedBytes() int { return 99 << 10 }

func (l *limits) Processors() int { return 132 }

func (l *limits) MostWork(device.DType) float64 { return 0 }

func (l *limits) Scratch(n int64) device.Mem {
	if n > kernels.ScratchBytes {
		l.t.Errorf("%d bytes of scratch", n)
	}
	return device.Mem{Addr: 1 << 40, Bytes: n}
}

// The sizes of the largest models and batches that launches must support.
const (
	manyTokens, manySeqs                  = 131072, 16384
	wideVocabulary, wideHidden, wideInner = 262144, 8192, 37888
	manyHeads, manyKVHeads, headDim       = 64, 8, 128
)

// TestLargest: every operation can be launched in the largest shapes, with tensors that are and are
// not aligned to 16 bytes. Grids, parameters and scratch memory stay within their limits.
func TestLargest(t *testing.T) {
	for _, dt := range []device.DType{device.F32, device.BF16} {
		for _, off := range []uintptr{0, 4} {
			l := &largest{limits: limits{t: t}, dt: dt, next: off}
			l.products()
			l.norms()
			l.elements()
			l.rows()
			l.experts()
			l.delta()
			for _, dim := range []int{32, 64, 96, 128, 192, 256} {
				l.attention(dim, 0)
				l.attention(dim, 30)
				l.sm90a = true
				l.attention(dim, 0)
				l.sm90a = false
			}
			if want := 12 * int(dt) * (1 - int(off)/4); l.hopper != want {
				t.Errorf("%s at %d: %d launches of kernels for sm_90a, want %d", dt, off, l.hopper, want)
			}
			if l.launches < 100 {
				t.Errorf("%s: %d launches", dt, l.launches)
			}
		}
	}
}

// largest is a limits Launcher that also makes tensors, with addresses but without memory.
type largest struct {
	limits
	dt   device.DType
	next uintptr
}

func (l *largest) tensor(dt device.DType, extents ...int64) device.Tensor {
	l.next += 1 << 40
	t := device.Tensor{Addr: l.next, Len: 1, DType: dt}
	for _, n := range extents {
		t.Len *= n
	}
	return t
}

func (l *largest) act(extents ...int64) device.Tensor { return l.tensor(l.dt, extents...) }
func (l *largest) f32(n int64) device.Tensor          { return l.tensor(device.F32, n) }
func (l *largest) ints(n int64) device.Tensor         { return l.tensor(device.I32, n) }

func (l *largest) products() {
	for _, s := range [][3]int64{{manyTokens, 2 * wideInner, wideHidden}, {manyTokens, wideVocabulary, wideHidden}, {wideVocabulary, wideHidden, manyTokens},
		{2 * wideInner, wideHidden, manyTokens}, {1, wideVocabulary, wideHidden}, {1, 1, manyTokens}} {
		for form := range 4 {
			kernels.MatMul(l, &op.MatMul{M: int(s[0]), N: int(s[1]), K: int(s[2]), TransA: form&1 > 0, TransB: form&2 > 0,
				A: l.act(s[0], s[2]), B: l.act(s[2], s[1]), D: l.act(s[0], s[1])})
		}
	}
}

func (l *largest) norms() {
	for _, s := range [][2]int{{1, wideHidden}, {manyHeads, headDim}, {1, 16384}} {
		width, w := s[0]*s[1], l.f32(int64(s[1]))
		x, rstd := l.act(manyTokens, int64(width)), l.f32(int64(manyTokens*s[0]))
		kernels.RMSNorm(l, &op.RMSNorm{Y: x, X: x, W: w, RStd: rstd, Rows: manyTokens, Groups: s[0], Dim: s[1], XStride: width, YStride: width})
		kernels.RMSNormBackward(l, &op.RMSNormBackward{DX: x, DY: x, X: x, W: w, DW: w, RStd: rstd, Rows: manyTokens, Groups: s[0], Dim: s[1],
			XStride: width, DXStride: width, DYStride: width})
	}
	for _, dim := range []int{wideHidden, 16384} {
		x, w, stats := l.act(manyTokens, int64(dim)), l.f32(int64(dim)), l.f32(2*manyTokens)
		kernels.LayerNorm(l, &op.LayerNorm{Y: x, X: x, W: w, B: w, Stats: stats, Rows: manyTokens, Dim: dim})
		kernels.LayerNormBackward(l, &op.LayerNormBackward{DX: x, DY: x, X: x, W: w, DW: w, Stats: stats, Rows: manyTokens, Dim: dim})
	}
}

func (l *largest) elements() {
	table := l.f32(manyTokens * headDim / 2)
	for _, interleaved := range []bool{false, true} {
		kernels.RoPE(l, &op.RoPE{X: l.act(manyTokens, manyHeads, headDim), Cos: table, Sin: table, Pos: l.ints(manyTokens),
			T: manyTokens, Heads: manyHeads, Dim: headDim, Rotary: headDim, Stride: manyHeads * headDim, Interleaved: interleaved})
	}
	gu, y := l.act(manyTokens, 2*wideInner), l.act(manyTokens, wideInner)
	for _, f := range []op.Activation{op.SiLU, op.GELUTanh, op.SigmoidGate} {
		kernels.GLU(l, &op.GLU{Activation: f, Y: y, GU: gu, T: manyTokens, F: wideInner})
		kernels.GLUBackward(l, &op.GLUBackward{Activation: f, DGU: gu, Y: y, DY: y, GU: gu, T: manyTokens, F: wideInner})
	}
	cut := op.Cut{Alpha: 1, Limit: 1}
	kernels.GLU(l, &op.GLU{Activation: op.CutSiLU, Cut: cut, Y: y, GU: gu, T: manyTokens, F: wideInner})
	kernels.GLUBackward(l, &op.GLUBackward{Activation: op.CutSiLU, Cut: cut, DGU: gu, Y: y, DY: y, GU: gu, T: manyTokens, F: wideInner})
	lse := l.f32(manyHeads * manyTokens)
	kernels.Sinks(l, &op.Sinks{O: l.act(manyTokens, manyHeads, headDim), LSE: lse, Sinks: l.f32(manyHeads), T: manyTokens, Heads: manyHeads, Dim: headDim})
	kernels.SinksGrad(l, &op.SinksGrad{DSinks: l.f32(manyHeads), LSE: lse, Delta: lse, Sinks: l.f32(manyHeads), T: manyTokens, Heads: manyHeads})
	x := l.act(manyTokens, wideHidden)
	kernels.AddPositions(l, &op.AddPositions{Y: x, X: x, Table: x, Pos: l.ints(manyTokens), T: manyTokens, C: wideHidden})
	kernels.AddPositionsBackward(l, &op.AddPositionsBackward{DTable: l.f32(manyTokens * wideHidden), DY: x, Cu: l.ints(manySeqs + 1), Seqs: manySeqs,
		Longest: manyTokens, T: manyTokens, C: wideHidden})
	for _, f := range []op.Activation{op.SiLU, op.GELUTanh, op.GELU} {
		kernels.Activate(l, &op.Activate{Activation: f, Y: gu, X: gu, T: manyTokens, F: 2 * wideInner})
		kernels.ActivateBackward(l, &op.ActivateBackward{Activation: f, DX: gu, Y: gu, DY: gu, X: gu, T: manyTokens, F: 2 * wideInner})
	}
	kernels.XIELU(l, &op.XIELU{Y: gu, X: gu, Alpha: l.f32(2), T: manyTokens, F: 2 * wideInner})
	kernels.XIELUBackward(l, &op.XIELUBackward{DX: gu, Y: gu, DY: gu, X: gu, Alpha: l.f32(2), DAlpha: l.f32(2), T: manyTokens, F: 2 * wideInner})
	kernels.Scale(l, &op.Scale{X: gu, N: 2 * manyTokens * wideInner, Factor: 2})
	kernels.AddBiasGrad(l, &op.AddBiasGrad{DB: l.f32(2 * wideInner), DY: gu, T: manyTokens, N: 2 * wideInner})
	kernels.AddBiasGrad(l, &op.AddBiasGrad{DB: l.f32(wideVocabulary), DY: l.act(manyTokens, wideVocabulary), T: manyTokens, N: wideVocabulary})
	kernels.Convert(l, &op.Convert{Dst: l.act(wideVocabulary, wideHidden), Src: l.f32(wideVocabulary * wideHidden), N: wideVocabulary * wideHidden})
}

func (l *largest) rows() {
	x, table := l.act(manyTokens, wideHidden), l.act(wideVocabulary, wideHidden)
	kernels.GatherRows(l, &op.GatherRows{Dst: x, Src: table, Index: l.ints(manyTokens), T: manyTokens, C: wideHidden})
	kernels.ScatterAddRows(l, &op.ScatterAddRows{DRows: l.f32(wideVocabulary * wideHidden), DY: x, Start: l.ints(wideVocabulary + 1), Pos: l.ints(manyTokens), U: wideVocabulary, T: manyTokens, C: wideHidden})
	kernels.AddNoise(l, &op.AddNoise{X: x, Cu: l.ints(manySeqs + 1), T: manyTokens, C: wideHidden, Seqs: manySeqs, Scale: 1})
	logits, targets, losses := l.act(manyTokens, wideVocabulary), l.ints(manyTokens), l.f32(manyTokens)
	kernels.PreferenceWeights(l, &op.PreferenceWeights{Weights: losses, Losses: losses, Targets: targets, Cu: l.ints(manyTokens + 1), Reference: losses,
		T: manyTokens, Pairs: manyTokens / 2, Loss: op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1}})
	kernels.CrossEntropy(l, &op.CrossEntropy{Logits: logits, Targets: targets, Losses: losses, T: manyTokens, V: wideVocabulary})
	for _, gradient := range []bool{false, true} {
		kernels.CrossEntropyShard(l, &op.CrossEntropyShard{Logits: logits, Targets: targets, Losses: losses, LSE: l.f32(manyTokens),
			T: manyTokens, V: wideVocabulary, Gradient: gradient})
	}
}

func (l *largest) experts() {
	const T, E, K = manyTokens, op.MaxExperts, op.MaxChosen
	logits, ids, weights, counts := l.f32(T*E), l.ints(T*K), l.f32(T*K), l.ints(E)
	kernels.Router(l, &op.Router{Logits: logits, IDs: ids, Weights: weights, ProbSum: l.f32(E), T: T, E: E, K: K})
	kernels.RouterBackward(l, &op.RouterBackward{DLogits: logits, Logits: logits, IDs: ids, DWeights: weights, Counts: counts, T: T, E: E, K: K})
	kernels.SortByExpert(l, &op.SortByExpert{IDs: ids, Order: l.ints(T * K), Rows: l.ints(T * K), Offsets: l.ints(E + 1), Counts: counts,
		N: T * K, K: K, E: E})
	x := l.act(T*K, wideInner)
	kernels.ScaleRows(l, &op.ScaleRows{X: x, W: weights, Index: ids, T: T * K, C: wideInner, P: T * K})
	kernels.ScaleRowsBackward(l, &op.ScaleRowsBackward{DY: x, Y: x, W: weights, DW: weights, Index: ids, T: T * K, C: wideInner, P: T * K})
	bias := l.f32(wideInner)
	kernels.WeightedBiasGrad(l, &op.WeightedBiasGrad{DB: bias, DW: weights, DY: x, B: bias, W: weights, Index: ids, T: T * K, C: wideInner, P: T * K})
	kernels.AddRows(l, &op.AddRows{Dst: l.f32(T * wideHidden), Src: l.act(T, wideHidden), Index: l.ints(T), U: T, T: T, C: wideHidden})
	kernels.AddRows(l, &op.AddRows{Dst: l.f32(T * wideHidden), Src: l.act(T, wideHidden), Index: l.ints(T), U: T, T: T, C: wideHidden,
		Bias: l.f32(wideHidden), W: weights, Pairs: l.ints(T), P: T * K})
}

func (l *largest) delta() {
	for _, seqs := range []int{1, manySeqs} {
		shape := op.DeltaShape{Cu: l.ints(int64(seqs) + 1), Seqs: seqs, T: manyTokens, KeyHeads: op.MostDeltaHeads, Heads: op.MostDeltaHeads,
			KeyDim: op.MostDeltaDim, ValueDim: op.MostDeltaDim, GateStride: 2 * op.MostDeltaHeads}
		if seqs > 1 {
			shape.KeyHeads = 16
		}
		qkv, gates, heads := l.act(manyTokens, int64(shape.Width())), l.act(manyTokens, 2*op.MostDeltaHeads), l.f32(op.MostDeltaHeads)
		states := l.f32(int64(shape.StatesLen()))
		kernels.GatedDelta(l, &op.GatedDelta{DeltaShape: shape, O: qkv, QKV: qkv, Gates: gates, ALog: heads, DtBias: heads, States: states})
		kernels.GatedDeltaBackward(l, &op.GatedDeltaBackward{DeltaShape: shape, DQKV: qkv, DGates: gates, DALog: heads, DDtBias: heads, DO: qkv, QKV: qkv,
			Gates: gates, ALog: heads, DtBias: heads, States: states})
		shape.KeyHeads, shape.ByChannel = op.MostDeltaHeads, true
		qkv, heads = l.act(manyTokens, int64(shape.Width())), l.f32(int64(shape.Decays()))
		rates := l.act(manyTokens, int64(shape.Decays()))
		kernels.GatedDelta(l, &op.GatedDelta{DeltaShape: shape, O: qkv, QKV: qkv, Gates: gates, A: rates, ALog: heads, DtBias: heads, States: states})
		kernels.GatedDeltaBackward(l, &op.GatedDeltaBackward{DeltaShape: shape, DQKV: qkv, DGates: gates, DA: rates, DALog: heads, DDtBias: heads, DO: qkv,
			QKV: qkv, Gates: gates, A: rates, ALog: heads, DtBias: heads, States: states})
		l.ssd(shape.Cu, seqs)
		w := l.f32(wideInner * op.MostTaps)
		x := l.act(manyTokens, wideInner)
		kernels.ShortConv(l, &op.ShortConv{Y: x, X: x, W: w, Cu: shape.Cu, Seqs: seqs, T: manyTokens, C: wideInner, Taps: op.MostTaps, XStride: wideInner})
		kernels.ShortConvBackward(l, &op.ShortConvBackward{DX: x, DW: w, DY: x, X: x, W: w, Cu: shape.Cu, Seqs: seqs, T: manyTokens, C: wideInner,
			Taps: op.MostTaps, XStride: wideInner, DXStride: wideInner})
	}
}

func (l *largest) ssd(cu device.Tensor, seqs int) {
	a := op.SSDShape{Cu: cu, Seqs: seqs, T: manyTokens, Groups: 8, Heads: 128, HeadDim: op.MostSSDHead, StateDim: op.MostSSDState, DtStride: 128, DtMax: 1}
	x, dt, heads, states := l.act(manyTokens, int64(a.Width())), l.act(manyTokens, 128), l.f32(128), l.f32(int64(a.StatesLen()))
	kernels.SSD(l, &op.SSD{SSDShape: a, O: x, XBC: x, Dt: dt, ALog: heads, DtBias: heads, D: heads, States: states})
	kernels.SSDBackward(l, &op.SSDBackward{SSDShape: a, DXBC: x, DDt: dt, DALog: heads, DDtBias: heads, DD: heads, DStates: states, DO: x, XBC: x, Dt: dt,
		ALog: heads, DtBias: heads, D: heads, States: states})
}

func (l *largest) attention(dim int, softcap float32) {
	shape := op.AttentionShape{CuQ: l.ints(manySeqs + 1), CuK: l.ints(manySeqs + 1), Seqs: manySeqs, TQ: manyTokens, TK: manyTokens,
		MaxQ: manyTokens, MaxK: manyTokens, Heads: manyHeads, KVHeads: manyKVHeads, Dim: dim, Scale: 1, Softcap: softcap}
	q, k, lse := l.act(manyTokens, manyHeads, int64(dim)), l.act(manyTokens, manyKVHeads, int64(dim)), l.f32(manyHeads*manyTokens)
	qStride, kStride := manyHeads*dim, manyKVHeads*dim
	kernels.Attention(l, &op.Attention{AttentionShape: shape, O: q, LSE: lse, Q: q, K: k, V: k, QStride: qStride, KStride: kStride})
	kernels.AttentionBackward(l, &op.AttentionBackward{AttentionShape: shape, DQ: q, DK: k, DV: k, DO: q, O: q, LSE: lse, Delta: lse,
		Q: q, K: k, V: k, QStride: qStride, KStride: kStride, DQStride: qStride, DKStride: kStride})
}
