package op

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/device"
)

// space is the address of the next made-up tensor. All tensors have different addresses, so that
// Check sees no two as the same memory.
var space uintptr

func tensor(dt device.DType, n int) device.Tensor {
	space += 1 << 20
	return device.Tensor{Addr: space, Len: int64(n), DType: dt}
}

func f32(n int) device.Tensor  { return tensor(device.F32, n) }
func bf16(n int) device.Tensor { return tensor(device.BF16, n) }
func i32(n int) device.Tensor  { return tensor(device.I32, n) }

// shape is attention over 2 sequences with 3 queries and 5 keys in all. 4 query heads of 6 elements
// share 2 key/value heads.
func shape() AttentionShape {
	return AttentionShape{CuQ: i32(3), CuK: i32(3), Seqs: 2, TQ: 3, TK: 5, MaxQ: 2, MaxK: 3, Heads: 4, KVHeads: 2, Dim: 6}
}

// TestEveryField: for every operation, Check accepts tensors of exactly the needed size. It refuses
// one element less, another type, a missing tensor, or a negative extent.
func TestEveryField(t *testing.T) {
	rows := func(n, stride, width int) int { return (n-1)*stride + width }
	q, k := rows(3, 30, 24), rows(5, 13, 12)
	every(t, MatMul{M: 2, N: 3, K: 5, A: bf16(10), B: bf16(15), C: f32(6), D: f32(6), Bias: f32(3)}, "C", "Bias")
	every(t, MatMul{M: 2, N: 3, K: 5, A: bf16(rows(2, 20, rows(2, 7, 5))), B: bf16(rows(2, 15, 15)), C: f32(rows(2, 4, rows(2, 9, 3))), D: f32(rows(2, 4, rows(2, 9, 3))),
		Batch: Batch{2, Place{7, 20}, Place{3, 15}, Place{9, 4}}}, "C")
	every(t, AddBiasGrad{DB: f32(3), DY: bf16(6), T: 2, N: 3})
	every(t, RMSNorm{Y: bf16(rows(3, 20, 8)), RStd: f32(6), X: bf16(rows(3, 10, 8)), W: f32(4),
		Residual: bf16(rows(3, 20, 8)), Rows: 3, Groups: 2, Dim: 4, XStride: 10, YStride: 20}, "RStd", "Residual")
	every(t, RMSNormBackward{DX: f32(rows(3, 9, 8)), DW: f32(4), DY: f32(rows(3, 10, 8)), X: f32(rows(3, 11, 8)),
		W: f32(4), RStd: f32(6), Rows: 3, Groups: 2, Dim: 4, DXStride: 9, DYStride: 10, XStride: 11, Add: true}, "DW")
	every(t, LayerNorm{Y: bf16(12), Stats: f32(6), X: bf16(12), W: f32(4), B: f32(4), Rows: 3, Dim: 4}, "Stats", "B")
	every(t, LayerNormBackward{DX: f32(12), DW: f32(4), DY: f32(12), X: f32(12), W: f32(4), Stats: f32(6), Rows: 3, Dim: 4, Add: true}, "DW")
	every(t, RoPE{X: bf16(rows(3, 20, 10)), Cos: f32(2), Sin: f32(2), Pos: i32(3), T: 3, Heads: 2, Dim: 6, Rotary: 4, Stride: 20})
	every(t, Attention{AttentionShape: shape(), O: bf16(3 * 24), LSE: f32(12), Q: bf16(q), K: bf16(k), V: bf16(k),
		QStride: 30, KStride: 13}, "LSE")
	every(t, AttentionBackward{AttentionShape: shape(), DQ: f32(rows(3, 25, 24)), DK: f32(rows(5, 14, 12)),
		DV: f32(rows(5, 14, 12)), DO: f32(3 * 24), O: f32(3 * 24), LSE: f32(12), Q: f32(q), K: f32(k), V: f32(k), QStride: 30, KStride: 13,
		DQStride: 25, DKStride: 14, Delta: f32(12), Sums: f32(2 * 2 * (3 + 16) * 64)}, "Sums")
	few := SparseShape{AttentionShape: shape(), Values: 4, TopK: 3, Keys: i32(9)}
	few.KVHeads = 1
	every(t, SparseAttention{SparseShape: few, O: bf16(3 * 16), LSE: f32(12), Q: bf16(q), K: bf16(rows(5, 7, 6)), QStride: 30, KStride: 7}, "LSE")
	every(t, SparseAttentionBackward{SparseShape: few, DQ: f32(rows(3, 25, 24)), DK: f32(rows(5, 8, 6)), DO: f32(3 * 16), O: f32(3 * 16), LSE: f32(12), Q: f32(q),
		K: f32(rows(5, 7, 6)), QStride: 30, KStride: 7, DQStride: 25, DKStride: 8, Delta: f32(12), Sums: f32(5 * 6)})
	every(t, GLU{Activation: GELUTanh, Y: bf16(6), GU: bf16(12), T: 2, F: 3})
	every(t, GLUBackward{DGU: f32(12), Y: f32(6), DY: f32(6), GU: f32(12), T: 2, F: 3}, "Y")
	every(t, GLU{Activation: CutSiLU, Cut: Cut{2, 3}, Y: bf16(6), GU: bf16(12), T: 2, F: 3})
	every(t, Sinks{O: bf16(30), LSE: f32(6), Sinks: f32(3), T: 2, Heads: 3, Dim: 5})
	every(t, PreferenceWeights{Weights: f32(7), Losses: f32(7), Targets: i32(7), Cu: i32(5), Reference: f32(4), T: 7, Pairs: 2, Loss: PreferenceLoss{Kind: Hinge, Beta: 1}})
	every(t, SinksGrad{DSinks: f32(3), LSE: f32(6), Delta: f32(6), Sinks: f32(3), T: 2, Heads: 3})
	every(t, GLU{Activation: SigmoidGate, Y: bf16(6), GU: bf16(12), T: 2, F: 3})
	every(t, ShortConv{Y: bf16(10), X: bf16(12), W: f32(15), Bias: f32(5), Cu: i32(2), Tail: bf16(10), Seqs: 1, T: 2, C: 5, Taps: 3, XStride: 7}, "Tail", "Bias")
	every(t, ShortConvBackward{DX: bf16(13), DW: f32(15), DBias: f32(5), DY: bf16(10), X: bf16(12), W: f32(15), Bias: f32(5), Cu: i32(3), Seqs: 2, T: 2, C: 5, Taps: 3,
		XStride: 7, DXStride: 8}, "DW", "Bias", "DBias")
	ofScan := SSDShape{Cu: i32(2), Seqs: 1, T: 65, Groups: 1, Heads: 2, HeadDim: 3, StateDim: 5, DtStride: 7, DtMax: 1}
	every(t, SSD{SSDShape: ofScan, O: bf16(65 * 6), XBC: bf16(65 * 16), Dt: bf16(64*7 + 2), ALog: f32(2), DtBias: f32(2), D: f32(2), States: f32(60), Last: f32(30)}, "Last")
	every(t, SSDBackward{SSDShape: ofScan, DXBC: bf16(65 * 16), DDt: bf16(64*7 + 2), DALog: f32(2), DDtBias: f32(2), DD: f32(2), DStates: f32(60), DO: bf16(65 * 6),
		XBC: bf16(65 * 16), Dt: bf16(64*7 + 2), ALog: f32(2), DtBias: f32(2), D: f32(2), States: f32(60)}, "DALog", "DDtBias", "DD")
	ofDelta := DeltaShape{Cu: i32(2), Seqs: 1, T: 65, KeyHeads: 1, Heads: 2, KeyDim: 3, ValueDim: 5, GateStride: 7}
	every(t, GatedDelta{DeltaShape: ofDelta, O: bf16(650), QKV: bf16(65 * 16), Gates: bf16(64*7 + 4), ALog: f32(2), DtBias: f32(2), States: f32(60), Last: f32(30)},
		"States", "Last")
	every(t, GatedDeltaBackward{DeltaShape: ofDelta, DQKV: bf16(65 * 16), DGates: bf16(64*7 + 4), DALog: f32(2), DDtBias: f32(2), DO: bf16(650), QKV: bf16(65 * 16),
		Gates: bf16(64*7 + 4), ALog: f32(2), DtBias: f32(2), States: f32(60)}, "DALog", "DDtBias")
	ofChannels := ofDelta
	ofChannels.KeyHeads, ofChannels.ByChannel = 2, true
	every(t, GatedDelta{DeltaShape: ofChannels, O: bf16(650), QKV: bf16(65 * 22), Gates: bf16(64*7 + 2), A: bf16(65 * 6), ALog: f32(2), DtBias: f32(6), States: f32(60),
		Last: f32(30)}, "States", "Last")
	every(t, GatedDeltaBackward{DeltaShape: ofChannels, DQKV: bf16(65 * 22), DGates: bf16(64*7 + 2), DA: bf16(65 * 6), DALog: f32(2), DDtBias: f32(6), DO: bf16(650),
		QKV: bf16(65 * 22), Gates: bf16(64*7 + 2), A: bf16(65 * 6), ALog: f32(2), DtBias: f32(6), States: f32(60)}, "DALog", "DDtBias")
	every(t, WeightedBiasGrad{DB: f32(3), DW: f32(5), DY: bf16(6), B: f32(3), W: f32(5), Index: i32(2), T: 2, C: 3, P: 5}, "DB")
	every(t, AddPositions{Y: bf16(6), X: bf16(6), Table: bf16(3), Pos: i32(2), T: 2, C: 3})
	every(t, AddPositionsBackward{DTable: f32(12), DY: bf16(6), Cu: i32(3), Seqs: 2, Longest: 4, From: 1, T: 2, C: 3})
	every(t, Activate{Activation: GELU, Y: bf16(6), X: bf16(6), T: 2, F: 3})
	every(t, ActivateBackward{DX: f32(6), Y: f32(6), DY: f32(6), X: f32(6), T: 2, F: 3}, "Y")
	every(t, XIELU{Y: bf16(6), X: bf16(6), Alpha: f32(2), T: 2, F: 3})
	every(t, XIELUBackward{DX: bf16(6), Y: bf16(6), DY: bf16(6), X: bf16(6), Alpha: f32(2), DAlpha: f32(2), T: 2, F: 3}, "DAlpha")
	every(t, Scale{X: bf16(7), N: 7})
	every(t, ScaleRows{X: bf16(6), W: f32(5), Index: i32(2), T: 2, C: 3, P: 5})
	every(t, ScaleRowsBackward{DY: bf16(6), Y: bf16(6), W: f32(5), DW: f32(5), Index: i32(2), T: 2, C: 3, P: 5})
	every(t, AddNoise{X: bf16(6), Cu: i32(3), T: 2, C: 3, Seqs: 2, From: 1, First: 4, Step: 1, Scale: 1})
	every(t, AddRows{Dst: f32(12), Src: bf16(6), Index: i32(2), U: 4, T: 2, C: 3, W: f32(5), Pairs: i32(2), Bias: f32(3), P: 5}, "Bias")
	every(t, Router{Logits: f32(10), Bias: f32(5), IDs: i32(6), Weights: f32(6), ProbSum: f32(5), T: 2, E: 5, K: 3}, "Bias", "ProbSum")
	rule := RouterRule{Sigmoid: true, Groups: 3, OpenGroups: 2, GroupBest: 2, Scale: 2, Shared: true, Gated: true}
	every(t, Router{Logits: f32(14), Bias: f32(6), IDs: i32(8), Weights: f32(8), ProbSum: f32(6), T: 2, E: 6, K: 3, Rule: rule}, "Bias", "ProbSum")
	every(t, RouterBackward{DLogits: f32(10), Logits: f32(10), IDs: i32(6), DWeights: f32(6), Counts: i32(5),
		T: 2, E: 5, K: 3}, "Counts")
	every(t, RouterBackward{DLogits: f32(14), Logits: f32(14), IDs: i32(8), DWeights: f32(8), Counts: i32(6), T: 2, E: 6, K: 3, Rule: rule}, "Counts")
	every(t, SortByExpert{IDs: i32(6), Order: i32(6), Rows: i32(6), Offsets: i32(6), Counts: i32(5), N: 6, K: 2, E: 5}, "Counts")
	every(t, CopyColumns{Dst: bf16(9), Src: bf16(7), T: 2, C: 3, DstStride: 6, SrcStride: 4})
	every(t, CopyHeads{Dst: bf16(rows(2, 30, rows(3, 9, 5))), Src: bf16(rows(2, 20, rows(3, 6, 4))), T: 2, Heads: 3, C: 4, Zeros: 1,
		DstStride: 30, DstHead: 9, SrcStride: 20, SrcHead: 6})
	every(t, SumHeads{Dst: bf16(rows(3, 7, 4)), Src: bf16(rows(3, 20, rows(3, 6, 4))), T: 3, Heads: 3, C: 4, DstStride: 7, SrcStride: 20, SrcHead: 6})
	every(t, GatherRows{Dst: bf16(6), Src: bf16(3), Index: i32(2), T: 2, C: 3})
	every(t, ScatterAddRows{DRows: f32(6), DY: bf16(15), Start: i32(3), Pos: i32(5), U: 2, T: 5, C: 3})
	every(t, CrossEntropy{Logits: bf16(6), Targets: i32(2), Losses: f32(2), Weights: f32(2), T: 2, V: 3}, "Weights")
	every(t, CrossEntropyShard{Logits: bf16(6), Targets: i32(2), LSE: f32(2), Losses: f32(2), Weights: f32(2), T: 2, V: 3, From: 7}, "Weights")
	every(t, Convert{Dst: bf16(7), Src: f32(7), N: 7})
}

// every checks one operation for TestEveryField: good are valid arguments, and it spoils each field
// in turn. Tensors named in optional may be none. Checking valid arguments must allocate nothing.
func every[O any, P interface {
	*O
	device.Op
}](t *testing.T, good O, optional ...string) {
	name, check := P(&good).Name(), func(o O) error { return P(&o).Check() }
	if want := reflect.TypeFor[O]().Name(); name != want {
		t.Errorf("%s is called %s", want, name)
	}
	if err := check(good); err != nil {
		t.Errorf("%s: good arguments: %v", name, err)
	}
	if n := testing.AllocsPerRun(10, func() { _ = P(&good).Check() }); n > 0 {
		t.Errorf("%s: %v allocations", name, n)
	}
	checkBytes(t, P(&good))
	for _, field := range reflect.VisibleFields(reflect.TypeFor[O]()) {
		bad := func(what string, change func(v reflect.Value), want string) {
			t.Helper()
			a := good
			change(reflect.ValueOf(&a).Elem().FieldByIndex(field.Index))
			err := check(a)
			if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %s %s: error %v, want %q", name, field.Name, what, err, want)
			}
		}
		switch v := reflect.ValueOf(good).FieldByIndex(field.Index).Interface().(type) {
		case int, int64:
			bad("negative", func(v reflect.Value) { v.SetInt(-1) }, "an extent is negative")
		case device.Tensor:
			if v.None() { // this form of the operation has no such tensor
				continue
			}
			set := func(x device.Tensor) func(reflect.Value) {
				return func(v reflect.Value) { v.Set(reflect.ValueOf(x)) }
			}
			short, other, none := v, v, fmt.Sprintf("%s holds 0 elements, want %d", field.Name, v.Len)
			if short.Len--; slices.Contains(optional, field.Name) {
				none = ""
			}
			if other.DType = device.I32; v.DType == device.I32 {
				other.DType = device.F32
			}
			bad("is short", set(short), fmt.Sprintf("%s holds %d elements, want %d", field.Name, short.Len, v.Len))
			bad("is of another type", set(other), fmt.Sprintf("%s is %s, want ", field.Name, other.DType))
			bad("is none", set(device.Tensor{}), none)
		}
	}
}

// checkBytes checks that o's Bytes is positive, and no more than reading and writing each of its
// tensors takes.
func checkBytes(t *testing.T, o device.Op) {
	t.Helper()
	m, ok := o.(Mover)
	if !ok {
		t.Errorf("%s does not say how many bytes it moves", o.Name())
		return
	}
	var all int64
	v := reflect.ValueOf(o).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		if x, ok := v.FieldByIndex(field.Index).Interface().(device.Tensor); ok {
			all += x.Mem().Bytes
		}
	}
	if n := m.Bytes(); n <= 0 || n > 2*all {
		t.Errorf("%s moves %d bytes; its tensors have %d", o.Name(), n, all)
	}
}

// TestBytes: Bytes counts each input once as read and each result once as written.
func TestBytes(t *testing.T) {
	heads, delta := shape(), DeltaShape{T: 65, KeyHeads: 1, Heads: 2, KeyDim: 3, ValueDim: 5} // two chunks
	byChannel := delta
	byChannel.KeyHeads, byChannel.ByChannel = 2, true
	for _, c := range []struct {
		o    Mover
		want int64
	}{
		{&Attention{AttentionShape: heads, Q: bf16(1)}, 2 * (2*3*24 + 2*5*12)},
		{&AttentionBackward{AttentionShape: heads, Q: bf16(1)}, 2 * (4*3*24 + 4*5*12)},
		{&GatedDelta{DeltaShape: delta, QKV: bf16(1)}, 2 * 65 * (16 + 10 + 2*2)},
		{&GatedDelta{DeltaShape: byChannel, QKV: bf16(1)}, 2 * 65 * (22 + 10 + 2 + 6)},
		{&GatedDeltaBackward{DeltaShape: byChannel, QKV: bf16(1)}, 2*65*(2*22+10+2*2+2*6) + 4*2*2*3*5},
		{&GatedDeltaBackward{DeltaShape: delta, QKV: bf16(1)}, 2*65*(2*16+10+4*2) + 4*2*2*3*5},
		{&ShortConv{T: 2, C: 5, X: bf16(1)}, 2 * 2 * 10},
		{&ShortConvBackward{T: 2, C: 5, X: bf16(1)}, 2 * 3 * 10},
		{&WeightedBiasGrad{T: 2, C: 3, DY: bf16(1)}, 2*6 + 16*2 + 12*3},
		{&CrossEntropy{T: 2, V: 3, Logits: bf16(1)}, 2*2*6 + 8*2},
		{&CrossEntropy{T: 2, V: 3, Logits: bf16(1), ForwardOnly: true}, 2*6 + 8*2},
	} {
		if got := c.o.Bytes(); got != c.want {
			t.Errorf("%T moves %d bytes, want %d", c.o, got, c.want)
		}
	}
}

// TestPreferenceLoss: PreferenceLoss.Of agrees with the published formulas, and its derivatives
// with finite differences.
func TestPreferenceLoss(t *testing.T) {
	const chosen, rejected, step = 3, 5, 1e-6
	logSigmoid := func(x float64) float64 { return -math.Log1p(math.Exp(-x)) }
	for kind, want := range map[PreferenceKind]func(c, r float64) float64{
		Sigmoid: func(c, r float64) float64 { return -0.75*logSigmoid(0.5*(c-r)) - 0.25*logSigmoid(-0.5*(c-r)) },
		Hinge:   func(c, r float64) float64 { return max(0, 1-0.5*(c-r)) },
		IPO:     func(c, r float64) float64 { return math.Pow(c/chosen-r/rejected-1, 2) },
	} {
		l := PreferenceLoss{Kind: kind, Beta: 0.5, Smoothing: 0.25}
		for _, at := range [][2]float64{{1, 0}, {0, 3}, {7, 1}} {
			c, r := at[0], at[1]
			loss, byC, byR := l.Of(c, r, chosen, rejected)
			diffC, diffR := (want(c+step, r)-want(c-step, r))/(2*step), (want(c, r+step)-want(c, r-step))/(2*step)
			if off := max(math.Abs(loss-want(c, r)), math.Abs(byC-diffC), math.Abs(byR-diffR)); off > 1e-7 { // of differences of numbers near 1
				t.Errorf("kind %d at %v: loss %g, derivatives %g and %g, want %g, %g and %g", kind, at, loss, byC, byR, want(c, r), diffC, diffR)
			}
		}
	}
}

// TestPairs: if all sequences are equally long, Pairs equals a count of the pairs that mask and
// window leave.
func TestPairs(t *testing.T) {
	for _, a := range []AttentionShape{{Seqs: 1, TQ: 7, TK: 7}, {Seqs: 3, TQ: 15, TK: 15}, {Seqs: 2, TQ: 6, TK: 14}, {Seqs: 1, TQ: 9, TK: 9, Window: 4},
		{Seqs: 2, TQ: 8, TK: 20, Window: 3}, {Seqs: 1, TQ: 5, TK: 9, Window: 7}, {Seqs: 1, TQ: 4, TK: 4, Window: 9}, {Seqs: 1, TQ: 4, TK: 4, Window: 1}, {Seqs: 1, TQ: 1, TK: 5}, {}} {
		n := 0
		for range a.Seqs {
			queries, keys := a.TQ/a.Seqs, a.TK/a.Seqs
			for q := range queries {
				at := keys - queries + q
				for k := range at + 1 {
					if a.Window == 0 || at-k < a.Window {
						n++
					}
				}
			}
		}
		if got := a.Pairs(); got != float64(n) {
			t.Errorf("%+v: %g pairs, want %d", a, got, n)
		}
	}
}

// TestGood: Check accepts unusual arguments that the contract allows, such as results in place of
// inputs and empty tensors.
func TestGood(t *testing.T) {
	x, w, r := f32(8), f32(4), f32(2)
	norm := RMSNormBackward{DX: x, DW: w, DY: x, X: x, W: w, RStd: r, Rows: 2, Groups: 1, Dim: 4, DXStride: 4, DYStride: 4, XStride: 4}
	for name, err := range map[string]error{
		"C is D":                    (&MatMul{M: 2, N: 4, K: 1, A: f32(2), B: f32(4), C: x, D: x}).Check(),
		"products of nothing":       (&MatMul{M: 2, N: 4, D: x}).Check(),
		"DX is DY":                  norm.Check(),
		"no rotation":               (&RoPE{X: x, T: 2, Heads: 1, Dim: 4, Stride: 4, Pos: i32(2)}).Check(),
		"Y is DY, DGU is GU":        (&GLUBackward{Activation: SiLU, DGU: x, Y: r, DY: r, GU: x, T: 1, F: 2}).Check(),
		"LayerNorm's DX is DY":      (&LayerNormBackward{DX: x, DW: w, DY: x, X: x, W: w, Stats: w, Rows: 2, Dim: 4}).Check(),
		"all of Activate in place":  (&ActivateBackward{DX: x, Y: w, DY: w, X: x, T: 1, F: 4}).Check(),
		"no row in use":             (&ScatterAddRows{DY: x, Pos: i32(2), T: 2, C: 4}).Check(),
		"a gradient needs no loss":  (&CrossEntropyShard{Logits: x, Targets: i32(2), LSE: r, T: 2, V: 4, Gradient: true}).Check(),
		"all are chosen":            (&Router{Logits: x, IDs: i32(8), Weights: f32(8), T: 2, E: 4, K: 4}).Check(),
		"DLogits are Logits":        (&RouterBackward{DLogits: x, Logits: x, IDs: i32(2), DWeights: r, T: 2, E: 4, K: 1}).Check(),
		"Residual is Y":             (&RMSNorm{Y: x, X: f32(8), W: w, Residual: x, Rows: 2, Groups: 1, Dim: 4, XStride: 4, YStride: 4}).Check(),
		"bf16 of bf16":              (&Convert{Dst: bf16(3), Src: bf16(3), N: 3}).Check(),
		"more than is needed":       (&AddBiasGrad{DB: f32(100), DY: bf16(100), T: 3, N: 5}).Check(),
		"rows on top of each other": (&RMSNorm{Y: x, X: w, W: w, Rows: 2, Groups: 1, Dim: 4, YStride: 4}).Check(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingToDo(t *testing.T) {
	empty := AttentionShape{CuQ: i32(1), CuK: i32(1), Heads: 4, KVHeads: 2, Dim: 6}
	for name, err := range map[string]error{
		"MatMul": (&MatMul{}).Check(), "AddBiasGrad": (&AddBiasGrad{}).Check(), "RMSNorm": (&RMSNorm{}).Check(),
		"RMSNormBackward": (&RMSNormBackward{Add: true}).Check(), "RoPE": (&RoPE{}).Check(),
		"Attention":         (&Attention{AttentionShape: empty}).Check(),
		"AttentionBackward": (&AttentionBackward{AttentionShape: empty}).Check(),
		"GLU":               (&GLU{Activation: SiLU, F: 3}).Check(), "GLUBackward": (&GLUBackward{Activation: SiLU, T: 3}).Check(),
		"LayerNorm": (&LayerNorm{}).Check(), "LayerNormBackward": (&LayerNormBackward{Add: true}).Check(),
		"AddNoise": (&AddNoise{Cu: i32(1), C: 3}).Check(), "AddPositions": (&AddPositions{C: 3}).Check(), "AddPositionsBackward": (&AddPositionsBackward{Cu: i32(1), C: 3}).Check(),
		"XIELU": (&XIELU{F: 3}).Check(), "XIELUBackward": (&XIELUBackward{T: 3}).Check(),
		"Activate": (&Activate{F: 3}).Check(), "ActivateBackward": (&ActivateBackward{T: 3}).Check(),
		"Scale": (&Scale{}).Check(), "ScaleRows": (&ScaleRows{C: 3}).Check(), "ScaleRowsBackward": (&ScaleRowsBackward{C: 3}).Check(),
		"AddRows": (&AddRows{C: 3}).Check(), "Router": (&Router{}).Check(), "RouterBackward": (&RouterBackward{}).Check(),
		"SortByExpert": (&SortByExpert{Offsets: i32(4), E: 3}).Check(),
		"CopyColumns":  (&CopyColumns{C: 4}).Check(), "CopyHeads": (&CopyHeads{C: 4, T: 3}).Check(), "SumHeads": (&SumHeads{C: 4}).Check(), "GatherRows": (&GatherRows{C: 4}).Check(), "ScatterAddRows": (&ScatterAddRows{}).Check(),
		"CrossEntropy": (&CrossEntropy{V: 3}).Check(), "CrossEntropyShard": (&CrossEntropyShard{}).Check(),
		"Convert": (&Convert{}).Check(), "WeightedSum": (&WeightedSum{}).Check(), "DivideByNorm": (&DivideByNorm{}).Check(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBad: Check refuses arguments of which each is valid, but which do not fit together.
func TestBad(t *testing.T) {
	x, w := f32(8), f32(4)
	odd, wide := shape(), shape()
	odd.Heads, wide.KVHeads = 3, 0
	cap := shape()
	cap.Softcap = float32(math.Inf(1))
	for _, c := range []struct {
		err  error
		want string
	}{
		{(&CrossEntropy{Logits: x, Targets: i32(2), Losses: f32(2), T: 2, V: 4, Terms: LossTerms{Smoothing: 1}}).Check(), "Smoothing is 1: want a share of 1, or 0 for none"},
		{(&CrossEntropy{Logits: x, Targets: i32(2), Losses: f32(2), T: 2, V: 4, Terms: LossTerms{Z: -1}}).Check(), "Z is -1: want a positive number, or 0 for none"},
		{(&CrossEntropyShard{Logits: x, Targets: i32(2), LSE: f32(2), Losses: f32(2), T: 2, V: 4, From: 5, Vocab: 8, Terms: LossTerms{Z: 1}}).Check(), "columns 5 to 9 of a vocabulary of 8"},
		{(&RMSNormBackward{DX: x, DW: w, DY: x, X: x, W: w, RStd: w, Rows: 2, Groups: 1, Dim: 4, DXStride: 4, DYStride: 4,
			XStride: 4, Add: true}).Check(), "with Add, DX may not be DY"},
		{(&RoPE{Dim: 4, Rotary: 3}).Check(), "Rotary is 3: want an even number up to Dim = 4"},
		{(&RoPE{Dim: 4, Rotary: 6}).Check(), "Rotary is 6: want an even number up to Dim = 4"},
		{(&Attention{AttentionShape: odd}).Check(), "3 heads do not share 2 key heads evenly"},
		{(&AttentionBackward{AttentionShape: wide}).Check(), "4 heads do not share 0 key heads evenly"},
		{(&MatMul{M: 1, N: 1, K: 1, A: x, B: bf16(1), D: x}).Check(), "B is bf16, want fp32"},
		{(&MatMul{M: 1, N: 1, K: 1, A: x, B: w, C: w, D: bf16(1)}).Check(), "C is fp32, want bf16"},
		{(&MatMul{M: 1, N: 1, K: 2, A: x, B: w, D: x, Batch: Batch{2, Place{2, 2}, Place{1, 2}, Place{1, 0}}}).Check(), "a batch with overlapping rows or results, or with a bias: {N:2 A:{Row:2 Next:2} B:{Row:1 Next:2} D:{Row:1 Next:0}}"},
		{(&MatMul{M: 2, N: 1, K: 2, A: x, B: w, D: x, Batch: Batch{1, Place{1, 2}, Place{1, 2}, Place{1, 1}}}).Check(), "a batch with overlapping rows or results, or with a bias: {N:1 A:{Row:1 Next:2} B:{Row:1 Next:2} D:{Row:1 Next:1}}"},
		{(&MatMul{M: 1, N: 1, K: 1, A: x, B: w, D: x, Bias: w, Batch: Batch{1, Place{1, 1}, Place{1, 1}, Place{1, 1}}}).Check(), "a batch with overlapping rows or results, or with a bias: {N:1 A:{Row:1 Next:1} B:{Row:1 Next:1} D:{Row:1 Next:1}}"},
		{(&RMSNorm{Y: bf16(4), X: x, W: w, Rows: 1, Groups: 1, Dim: 4}).Check(), "Y is bf16, want fp32"},
		{(&CrossEntropyShard{Targets: i32(2), LSE: w, Losses: w, T: 2}).Check(), "a shard has no columns"},
		{(&RMSNorm{Y: f32(8), X: x, W: w, Residual: x, Rows: 2, Groups: 1, Dim: 4, XStride: 4, YStride: 4}).Check(), "Residual may not be X"},
		{(&GLU{Activation: CutSiLU, Cut: Cut{Alpha: 1}, Y: x, GU: x, T: 1, F: 1}).Check(), "cut_silu with alpha 1 and limit 0: both must be above 0"},
		{(&GLUBackward{Cut: Cut{1, 1}, DGU: x, Y: x, DY: x, GU: x, T: 1, F: 1}).Check(), "silu has no alpha and no limit"},
		{(&LayerNormBackward{DX: x, DW: w, DY: x, X: x, W: w, Stats: w, Rows: 2, Dim: 4, Add: true}).Check(), "with Add, DX may not be DY"},
		{(&Activate{Activation: CutSiLU, Y: x, X: x, T: 1, F: 1}).Check(), "cut_silu is computed of a gate"},
		{(&Activate{Activation: SigmoidGate, Y: x, X: x, T: 1, F: 1}).Check(), "sigmoid is computed of a gate"},
		{(&ShortConv{Taps: 9}).Check(), "9 taps: want 1 to 8"},
		{(&ShortConvBackward{}).Check(), "0 taps: want 1 to 8"},
		{(&ShortConv{Taps: 1, Seqs: 2, Cu: i32(3), Tail: x}).Check(), "Tail with 2 sequences: want one"},
		{(&GatedDelta{DeltaShape: DeltaShape{KeyHeads: 2, Heads: 3}}).Check(), "3 heads do not share 2 key heads evenly"},
		{(&GatedDelta{DeltaShape: DeltaShape{KeyHeads: 1, Heads: 2, ByChannel: true}}).Check(), "1 key heads for 2 heads, which decay by channel: want as many"},
		{(&GatedDelta{DeltaShape: DeltaShape{KeyHeads: 1, Heads: 65}}).Check(), "65 heads: at most 64"},
		{(&GatedDeltaBackward{DeltaShape: DeltaShape{KeyHeads: 1, Heads: 1, KeyDim: 4, ValueDim: 129}}).Check(), "a state is 4 by 129: want at most 128"},
		{(&GatedDelta{DeltaShape: DeltaShape{KeyHeads: 1, Heads: 1, Seqs: 2, Cu: i32(3)}, ALog: x, DtBias: x, Last: x}).Check(), "Last with 2 sequences: want one"},
		{(&GLU{Activation: 7, Y: x, GU: x, T: 1, F: 1}).Check(), "Activation(7) is no activation"},
		{(&ActivateBackward{Activation: 7, DX: x, Y: x, DY: x, X: x, T: 1, F: 1}).Check(), "Activation(7) is no activation"},
		{(&GLU{Activation: SquaredReLU, Y: x, GU: x, T: 1, F: 1}).Check(), "relu2 is no activation of a gate"},
		{(&SSD{SSDShape: SSDShape{Groups: 1, Heads: 1, HeadDim: 129}}).Check(), "a state is 129 by 0: want at most 128 by 256"},
		{(&SSD{SSDShape: SSDShape{Groups: 2, Heads: 3}}).Check(), "3 heads do not share 2 groups evenly"},
		{(&SSDBackward{SSDShape: SSDShape{Groups: 1, Heads: 1, DtMin: 2, DtMax: 1}}).Check(), "steps from 2 to 1: want bounds from 0 on in order"},
		{(&GLUBackward{Activation: 9, DGU: x, Y: x, DY: x, GU: x, T: 1, F: 1}).Check(), "Activation(9) is no activation"},
		{(&CrossEntropy{Softcap: -1}).Check(), "Softcap is -1: want a positive number, or 0 for none"},
		{(&CrossEntropyShard{Softcap: float32(math.NaN())}).Check(), "Softcap is NaN: want a positive number, or 0 for none"},
		{(&Attention{AttentionShape: cap}).Check(), "Softcap is +Inf: want a positive number, or 0 for none"},
		{(&Router{Logits: x, T: 2}).Check(), "there are no experts"},
		{(&Router{Logits: x, T: 2, E: 4}).Check(), "0 of 4 experts are chosen: want 1 to 4"},
		{(&RouterBackward{T: 2, E: 4, K: 5}).Check(), "5 of 4 experts are chosen: want 1 to 4"},
		{(&Router{T: 2, E: 64, K: 33}).Check(), "33 of 64 experts are chosen: want 1 to 32"},
		{(&Router{E: 1025}).Check(), "1025 experts: at most 1024"},
		{(&Router{T: 1, E: 1024, K: 1, Rule: RouterRule{Shared: true}}).Check(), "1025 experts: at most 1024"},
		{(&Router{T: 2, E: 64, K: 32, Rule: RouterRule{Shared: true}}).Check(), "32 of 64 experts are chosen: want 1 to 31"},
		{(&Router{T: 2, E: 8, K: 5, Rule: RouterRule{Groups: 4, OpenGroups: 2, GroupBest: 2}}).Check(), "5 of 8 experts are chosen: want 1 to 4"},
		{(&Router{E: 8, Rule: RouterRule{Groups: 3, OpenGroups: 2, GroupBest: 2}}).Check(), "8 experts in 3 groups: want groups of equal size, at most 32"},
		{(&Router{E: 66, Rule: RouterRule{Groups: 33, OpenGroups: 2, GroupBest: 2}}).Check(), "66 experts in 33 groups: want groups of equal size, at most 32"},
		{(&Router{E: 8, Rule: RouterRule{Groups: 4, OpenGroups: 5, GroupBest: 2}}).Check(), "5 of 4 groups are open: want 1 to 4"},
		{(&Router{E: 8, Rule: RouterRule{Groups: 4, OpenGroups: 1, GroupBest: 3}}).Check(), "a group of 2 experts is worth 3 keys: want 1 or 2, and no more than it has"},
		{(&Router{E: 8, Rule: RouterRule{Groups: 8, OpenGroups: 1, GroupBest: 2}}).Check(), "a group of 1 experts is worth 2 keys: want 1 or 2, and no more than it has"},
		{(&Router{T: 1, E: 1, K: 1, Rule: RouterRule{Groups: 1, OpenGroups: 1, GroupBest: 2}}).Check(), "a group of 1 experts is worth 2 keys: want 1 or 2, and no more than it has"},
		{(&RouterBackward{E: 8, Rule: RouterRule{Gated: true}}).Check(), "there is a gate and no shared expert"},
		{(&SortByExpert{N: 5, K: 2, E: 3}).Check(), "5 pairs are not 2 for each token"},
		{(&SortByExpert{N: 5, E: 3}).Check(), "5 pairs are not 0 for each token"},
		{(&CopyHeads{Dst: x, Src: x, T: 1, Heads: 2, C: 3, Zeros: 1, DstHead: 3, SrcHead: 3}).Check(), "DstHead is 3: heads of 4 elements overlap"},
		{(&Convert{Dst: w, Src: x, N: 5}).Check(), "Dst holds 4 elements, want 5"},
		{(&WeightedSum{D: x, X: bf16(8), Y: x, N: 8}).Check(), "X is bf16, want fp32"},
		{(&WeightedSum{D: bf16(8), X: bf16(8), Y: bf16(8), N: 8}).Check(), "Y is bf16, want fp32"},
		{(&DivideByNorm{X: x, N: 8}).Check(), "Eps is 0: want a positive number"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("error %v, want %q", c.err, c.want)
		}
	}
}
