package args

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/device"
)

// space is where tensors lie: each at another place, so that none is another.
var space uintptr

func tensor(dt device.DType, n int) device.Tensor {
	space += 1 << 20
	return device.Tensor{Addr: space, Len: int64(n), DType: dt}
}

func f32(n int) device.Tensor  { return tensor(device.F32, n) }
func bf16(n int) device.Tensor { return tensor(device.BF16, n) }
func i32(n int) device.Tensor  { return tensor(device.I32, n) }

// The arguments of operations that have no struct, by the names in their errors.
type (
	biasGrad struct {
		DB, DY device.Tensor
		T, N   int
	}
	glu struct {
		Y, GU device.Tensor
		T, F  int
	}
	gluBackward struct {
		DGU, Y, DY, GU device.Tensor
		T, F           int
	}
	gather struct {
		Dst, Src, Index device.Tensor
		T, C            int
	}
	scatter struct {
		DRows, DY, Start, Pos device.Tensor
		U, T, C               int
	}
	scale struct {
		X device.Tensor
		N int64
	}
	addRows struct {
		Dst, Src, Index device.Tensor
		U, T, C         int
	}
	convert struct {
		Dst, Src device.Tensor
		N        int64
	}
)

// shape is 3 queries and 5 keys in 2 sequences, 4 heads of 6 on 2 key heads.
func shape() device.AttentionShape {
	return device.AttentionShape{CuQ: i32(3), CuK: i32(3), Seqs: 2, TQ: 3, TK: 5, MaxQ: 2, MaxK: 3, Heads: 4, KVHeads: 2, Dim: 6}
}

// Tensors of just the size that is needed are good. One element less, another
// type, or no tensor where one is needed is bad, and so is a negative extent.
func TestEveryField(t *testing.T) {
	rows := func(n, stride, width int) int { return (n-1)*stride + width }
	q, k := rows(3, 30, 24), rows(5, 13, 12)
	every(t, "MatMul", device.MatMul{M: 2, N: 3, K: 5, A: bf16(10), B: bf16(15), C: f32(6), D: f32(6), Bias: f32(3)}, MatMul, "C", "Bias")
	every(t, "AddBiasGrad", biasGrad{f32(3), bf16(6), 2, 3}, func(a biasGrad) error { return AddBiasGrad(a.DB, a.DY, a.T, a.N) })
	every(t, "RMSNorm", device.RMSNorm{Y: bf16(rows(3, 20, 8)), RStd: f32(6), X: bf16(rows(3, 10, 8)), W: f32(4),
		Residual: bf16(rows(3, 20, 8)), Rows: 3, Groups: 2, Dim: 4, XStride: 10, YStride: 20}, RMSNorm, "RStd", "Residual")
	every(t, "RMSNormBackward", device.RMSNormBackward{DX: f32(rows(3, 9, 8)), DW: f32(4), DY: f32(rows(3, 10, 8)), X: f32(rows(3, 11, 8)),
		W: f32(4), RStd: f32(6), Rows: 3, Groups: 2, Dim: 4, DXStride: 9, DYStride: 10, XStride: 11, Add: true}, RMSNormBackward)
	every(t, "RoPE", device.RoPE{X: bf16(rows(3, 20, 12)), Cos: f32(2), Sin: f32(2), Pos: i32(3), T: 3, Heads: 2, Dim: 6, Rotary: 4, Stride: 20}, RoPE)
	every(t, "Attention", device.Attention{AttentionShape: shape(), O: bf16(3 * 24), LSE: f32(12), Q: bf16(q), K: bf16(k), V: bf16(k),
		QStride: 30, KStride: 13}, Attention, "LSE")
	every(t, "AttentionBackward", device.AttentionBackward{AttentionShape: shape(), DQ: f32(rows(3, 25, 24)), DK: f32(rows(5, 14, 12)),
		DV: f32(rows(5, 14, 12)), DO: f32(3 * 24), O: f32(3 * 24), LSE: f32(12), Q: f32(q), K: f32(k), V: f32(k), QStride: 30, KStride: 13,
		DQStride: 25, DKStride: 14, Delta: f32(12)}, AttentionBackward)
	every(t, "GLU", glu{bf16(6), bf16(12), 2, 3}, func(a glu) error { return GLU(device.GELUTanh, a.Y, a.GU, a.T, a.F) })
	every(t, "GLUBackward", gluBackward{f32(12), f32(6), f32(6), f32(12), 2, 3},
		func(a gluBackward) error { return GLUBackward(device.SiLU, a.DGU, a.Y, a.DY, a.GU, a.T, a.F) }, "Y")
	every(t, "Scale", scale{bf16(7), 7}, func(a scale) error { return Scale(a.X, a.N) })
	every(t, "ScaleRows", device.ScaleRows{X: bf16(6), W: f32(5), Index: i32(2), T: 2, C: 3, P: 5}, ScaleRows)
	every(t, "ScaleRowsBackward", device.ScaleRowsBackward{DY: bf16(6), Y: bf16(6), W: f32(5), DW: f32(5), Index: i32(2), T: 2, C: 3, P: 5},
		ScaleRowsBackward)
	every(t, "AddRows", addRows{f32(12), bf16(6), i32(2), 4, 2, 3},
		func(a addRows) error { return AddRows(a.Dst, a.Src, a.Index, a.U, a.T, a.C) })
	every(t, "Router", device.Router{Logits: f32(10), IDs: i32(6), Weights: f32(6), ProbSum: f32(5), T: 2, E: 5, K: 3}, Router, "ProbSum")
	every(t, "RouterBackward", device.RouterBackward{DLogits: f32(10), Logits: f32(10), IDs: i32(6), DWeights: f32(6), Counts: i32(5),
		T: 2, E: 5, K: 3}, RouterBackward, "Counts")
	every(t, "SortByExpert", device.SortByExpert{IDs: i32(6), Order: i32(6), Rows: i32(6), Offsets: i32(6), Counts: i32(5), N: 6, K: 2, E: 5},
		SortByExpert, "Counts")
	every(t, "GatherRows", gather{bf16(6), bf16(3), i32(2), 2, 3}, func(a gather) error { return GatherRows(a.Dst, a.Src, a.Index, a.T, a.C) })
	every(t, "ScatterAddRows", scatter{f32(6), bf16(15), i32(3), i32(5), 2, 5, 3},
		func(a scatter) error { return ScatterAddRows(a.DRows, a.DY, a.Start, a.Pos, a.U, a.T, a.C) })
	every(t, "CrossEntropy", device.CrossEntropy{Logits: bf16(6), Targets: i32(2), Losses: f32(2), T: 2, V: 3}, CrossEntropy)
	every(t, "CrossEntropyShard", device.CrossEntropyShard{Logits: bf16(6), Targets: i32(2), LSE: f32(2), Losses: f32(2), T: 2, V: 3, From: 7},
		CrossEntropyShard)
	every(t, "Convert", convert{bf16(7), f32(7), 7}, func(a convert) error { return Convert(a.Dst, a.Src, a.N) })
}

// every tries what TestEveryField says on the good arguments. Tensors named in
// optional may be none.
func every[A any](t *testing.T, name string, good A, check func(A) error, optional ...string) {
	if err := check(good); err != nil {
		t.Errorf("%s: good arguments: %v", name, err)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[A]()) {
		bad := func(what string, change func(v reflect.Value), want string) {
			t.Helper()
			a := good
			change(reflect.ValueOf(&a).Elem().FieldByIndex(field.Index))
			err := check(a)
			if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(strings.ToLower(err.Error()), strings.ToLower(want)) {
				t.Errorf("%s: %s %s: error %v, want %q", name, field.Name, what, err, want)
			}
		}
		switch v := reflect.ValueOf(good).FieldByIndex(field.Index).Interface().(type) {
		case int, int64:
			bad("negative", func(v reflect.Value) { v.SetInt(-1) }, "an extent is negative")
		case device.Tensor:
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

// What the contract allows beside the usual.
func TestGood(t *testing.T) {
	x, w, r := f32(8), f32(4), f32(2)
	norm := device.RMSNormBackward{DX: x, DW: w, DY: x, X: x, W: w, RStd: r, Rows: 2, Groups: 1, Dim: 4, DXStride: 4, DYStride: 4, XStride: 4}
	for name, err := range map[string]error{
		"C is D":                    MatMul(device.MatMul{M: 2, N: 4, K: 1, A: f32(2), B: f32(4), C: x, D: x}),
		"products of nothing":       MatMul(device.MatMul{M: 2, N: 4, D: x}),
		"DX is DY":                  RMSNormBackward(norm),
		"no rotation":               RoPE(device.RoPE{X: x, T: 2, Heads: 1, Dim: 4, Stride: 4, Pos: i32(2)}),
		"y is dy, dgu is gu":        GLUBackward(device.SiLU, x, r, r, x, 1, 2),
		"no row in use":             ScatterAddRows(device.Tensor{}, x, device.Tensor{}, i32(2), 0, 2, 4),
		"a gradient needs no loss":  CrossEntropyShard(device.CrossEntropyShard{Logits: x, Targets: i32(2), LSE: r, T: 2, V: 4, Gradient: true}),
		"all are chosen":            Router(device.Router{Logits: x, IDs: i32(8), Weights: f32(8), T: 2, E: 4, K: 4}),
		"DLogits are Logits":        RouterBackward(device.RouterBackward{DLogits: x, Logits: x, IDs: i32(2), DWeights: r, T: 2, E: 4, K: 1}),
		"Residual is Y":             RMSNorm(device.RMSNorm{Y: x, X: f32(8), W: w, Residual: x, Rows: 2, Groups: 1, Dim: 4, XStride: 4, YStride: 4}),
		"bf16 of bf16":              Convert(bf16(3), bf16(3), 3),
		"more than is needed":       AddBiasGrad(f32(100), bf16(100), 3, 5),
		"rows on top of each other": RMSNorm(device.RMSNorm{Y: x, X: w, W: w, Rows: 2, Groups: 1, Dim: 4, YStride: 4}),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingToDo(t *testing.T) {
	var none device.Tensor
	empty := device.AttentionShape{CuQ: i32(1), CuK: i32(1), Heads: 4, KVHeads: 2, Dim: 6}
	for name, err := range map[string]error{
		"MatMul": MatMul(device.MatMul{}), "AddBiasGrad": AddBiasGrad(none, none, 0, 0), "RMSNorm": RMSNorm(device.RMSNorm{}),
		"RMSNormBackward": RMSNormBackward(device.RMSNormBackward{Add: true}), "RoPE": RoPE(device.RoPE{}),
		"Attention":         Attention(device.Attention{AttentionShape: empty}),
		"AttentionBackward": AttentionBackward(device.AttentionBackward{AttentionShape: empty}),
		"GLU":               GLU(device.SiLU, none, none, 0, 3), "GLUBackward": GLUBackward(device.SiLU, none, none, none, none, 3, 0),
		"Scale": Scale(none, 0), "ScaleRows": ScaleRows(device.ScaleRows{C: 3}), "ScaleRowsBackward": ScaleRowsBackward(device.ScaleRowsBackward{C: 3}),
		"AddRows": AddRows(none, none, none, 0, 0, 3), "Router": Router(device.Router{}), "RouterBackward": RouterBackward(device.RouterBackward{}),
		"SortByExpert": SortByExpert(device.SortByExpert{Offsets: i32(4), E: 3}),
		"GatherRows":   GatherRows(none, none, none, 0, 4), "ScatterAddRows": ScatterAddRows(none, none, none, none, 0, 0, 0),
		"CrossEntropy": CrossEntropy(device.CrossEntropy{V: 3}), "CrossEntropyShard": CrossEntropyShard(device.CrossEntropyShard{}),
		"Convert": Convert(none, none, 0),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What no single field shows.
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
		{RMSNormBackward(device.RMSNormBackward{DX: x, DW: w, DY: x, X: x, W: w, RStd: w, Rows: 2, Groups: 1, Dim: 4, DXStride: 4, DYStride: 4,
			XStride: 4, Add: true}), "with Add, DX may not be DY"},
		{RoPE(device.RoPE{Dim: 4, Rotary: 3}), "Rotary is 3: want an even number up to Dim = 4"},
		{RoPE(device.RoPE{Dim: 4, Rotary: 6}), "Rotary is 6: want an even number up to Dim = 4"},
		{Attention(device.Attention{AttentionShape: odd}), "3 heads do not share 2 key heads evenly"},
		{AttentionBackward(device.AttentionBackward{AttentionShape: wide}), "4 heads do not share 0 key heads evenly"},
		{MatMul(device.MatMul{M: 1, N: 1, K: 1, A: x, B: bf16(1), D: x}), "B is bf16, want fp32"},
		{MatMul(device.MatMul{M: 1, N: 1, K: 1, A: x, B: w, C: w, D: bf16(1)}), "C is fp32, want bf16"},
		{RMSNorm(device.RMSNorm{Y: bf16(4), X: x, W: w, Rows: 1, Groups: 1, Dim: 4}), "Y is bf16, want fp32"},
		{CrossEntropyShard(device.CrossEntropyShard{Targets: i32(2), LSE: w, Losses: w, T: 2}), "a shard has no columns"},
		{RMSNorm(device.RMSNorm{Y: f32(8), X: x, W: w, Residual: x, Rows: 2, Groups: 1, Dim: 4, XStride: 4, YStride: 4}), "Residual may not be X"},
		{GLU(2, x, x, 1, 1), "Activation(2) is no activation"},
		{GLUBackward(9, x, x, x, x, 1, 1), "Activation(9) is no activation"},
		{CrossEntropy(device.CrossEntropy{Softcap: -1}), "Softcap is -1: want a positive number, or 0 for none"},
		{CrossEntropyShard(device.CrossEntropyShard{Softcap: float32(math.NaN())}), "Softcap is NaN: want a positive number, or 0 for none"},
		{Attention(device.Attention{AttentionShape: cap}), "Softcap is +Inf: want a positive number, or 0 for none"},
		{Router(device.Router{Logits: x, T: 2}), "there are no experts"},
		{Router(device.Router{Logits: x, T: 2, E: 4}), "0 of 4 experts are chosen: want 1 to 4"},
		{RouterBackward(device.RouterBackward{T: 2, E: 4, K: 5}), "5 of 4 experts are chosen: want 1 to 4"},
		{Router(device.Router{T: 2, E: 64, K: 33}), "33 of 64 experts are chosen: want 1 to 32"},
		{Router(device.Router{E: 1025}), "1025 experts: at most 1024"},
		{SortByExpert(device.SortByExpert{N: 5, K: 2, E: 3}), "5 pairs are not 2 for each token"},
		{SortByExpert(device.SortByExpert{N: 5, E: 3}), "5 pairs are not 0 for each token"},
		{Convert(w, x, 5), "dst holds 4 elements, want 5"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("error %v, want %q", c.err, c.want)
		}
	}
}
