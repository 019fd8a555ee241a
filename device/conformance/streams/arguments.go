package streams

import (
	"testing"

	"mt/device"
	"mt/device/op"
)

// Every operation checks its arguments.
func badArguments(t *testing.T, d rig) {
	m := Alloc(t, d, 4096)
	f, h, ints := m.Tensor(device.F32, 0, 64), m.Tensor(device.BF16, 512, 64), m.Tensor(device.I32, 1024, 8)
	shape := op.AttentionShape{CuQ: ints, CuK: ints, Seqs: 1, TQ: 1, TK: 1, MaxQ: 1, MaxK: 1, Heads: 1, KVHeads: 1, Dim: 4}
	BadArguments(t, d, []BadCall{
		{"MatMul: C is fp32, want bf16", func(s device.Stream) {
			op.Do(d, s, op.MatMul{M: 1, N: 1, K: 1, A: h, B: h, D: h, C: f})
		}},
		{"AddBiasGrad: an extent is negative", func(s device.Stream) { op.Do(d, s, op.AddBiasGrad{DB: f, DY: f, T: -1, N: 2}) }},
		{"RMSNorm: Y is bf16, want fp32", func(s device.Stream) {
			op.Do(d, s, op.RMSNorm{Y: h, X: f, W: f, Rows: 1, Groups: 1, Dim: 4, XStride: 4, YStride: 4})
		}},
		{"RMSNormBackward: with Add, DX may not be DY", func(s device.Stream) {
			op.Do(d, s, op.RMSNormBackward{DX: f, DY: f, X: f, W: f, DW: f, RStd: f, Rows: 1, Groups: 1, Dim: 4, Add: true})
		}},
		{"LayerNorm: Stats holds 1 elements, want 2", func(s device.Stream) {
			op.Do(d, s, op.LayerNorm{Y: f, Stats: f.Slice(0, 1), X: f, W: f, Rows: 1, Dim: 4})
		}},
		{"LayerNormBackward: with Add, DX may not be DY", func(s device.Stream) {
			op.Do(d, s, op.LayerNormBackward{DX: f, DY: f, X: f, W: f, DW: f, Stats: f, Rows: 1, Dim: 4, Add: true})
		}},
		{"RoPE: Pos holds 0 elements, want 1", func(s device.Stream) {
			op.Do(d, s, op.RoPE{X: f, Cos: f, Sin: f, T: 1, Heads: 1, Dim: 4, Rotary: 4, Stride: 4})
		}},
		{"Attention: 3 heads do not share 2 key heads evenly", func(s device.Stream) {
			op.Do(d, s, op.Attention{AttentionShape: op.AttentionShape{Heads: 3, KVHeads: 2}})
		}},
		{"AttentionBackward: DK holds 0 elements, want 4", func(s device.Stream) {
			op.Do(d, s, op.AttentionBackward{AttentionShape: shape, Q: f, K: f, V: f, O: f, DO: f, DQ: f})
		}},
		{"GLU: GU is int32, want fp32 or bf16", func(s device.Stream) { op.Do(d, s, op.GLU{Activation: op.SiLU, Y: f, GU: ints, T: 1, F: 2}) }},
		{"GLUBackward: DGU holds 8 elements, want 64", func(s device.Stream) {
			op.Do(d, s, op.GLUBackward{Activation: op.SiLU, DGU: f.Slice(0, 8), Y: f, DY: f, GU: f, T: 4, F: 8})
		}},
	})
	badRows(t, d, f, h, ints)
}

// badRows makes calls of operations on rows, experts and losses that a device refuses. f, h and ints are memory for numbers of
// each type.
func badRows(t *testing.T, d rig, f, h, ints device.Tensor) {
	BadArguments(t, d, []BadCall{
		{"AddPositions: Pos is fp32, want int32", func(s device.Stream) {
			op.Do(d, s, op.AddPositions{Y: f, X: f, Table: f, Pos: f, T: 1, C: 4})
		}},
		{"AddPositionsBackward: Cu holds 8 elements, want 9", func(s device.Stream) {
			op.Do(d, s, op.AddPositionsBackward{DTable: f, DY: f, Cu: ints, Seqs: 8, Longest: 1, T: 1, C: 4})
		}},
		{"Activate: Activation(7) is no activation", func(s device.Stream) { op.Do(d, s, op.Activate{Activation: 7, Y: f, X: f, T: 1, F: 2}) }},
		{"ActivateBackward: DY is bf16, want fp32", func(s device.Stream) {
			op.Do(d, s, op.ActivateBackward{DX: f, DY: h, X: f, T: 1, F: 2})
		}},
		{"Scale: X is int32, want fp32 or bf16", func(s device.Stream) { op.Do(d, s, op.Scale{X: ints, N: 1, Factor: 2}) }},
		{"GatherRows: Index is fp32, want int32", func(s device.Stream) { op.Do(d, s, op.GatherRows{Dst: f, Src: f, Index: f, T: 1, C: 4}) }},
		{"ScatterAddRows: Start is fp32, want int32", func(s device.Stream) {
			op.Do(d, s, op.ScatterAddRows{DRows: f, DY: f, Start: f, Pos: ints, U: 1, T: 2, C: 4})
		}},
		{"ScaleRows: Index is fp32, want int32", func(s device.Stream) {
			op.Do(d, s, op.ScaleRows{X: f, W: f, Index: f, T: 1, C: 4, P: 1})
		}},
		{"ScaleRowsBackward: DY is bf16, want fp32", func(s device.Stream) {
			op.Do(d, s, op.ScaleRowsBackward{Y: f, DY: h, W: f, DW: f, Index: ints, T: 1, C: 4, P: 1})
		}},
		{"AddNoise: Cu is fp32, want int32", func(s device.Stream) { op.Do(d, s, op.AddNoise{X: f, Cu: f, T: 1, C: 4, Seqs: 1}) }},
		{"AddRows: Dst is bf16, want fp32", func(s device.Stream) { op.Do(d, s, op.AddRows{Dst: h, Src: h, Index: ints, U: 1, T: 1, C: 4}) }},
		{"Router: 3 of 2 experts are chosen: want 1 to 2", func(s device.Stream) {
			op.Do(d, s, op.Router{Logits: f, IDs: ints, Weights: f, T: 1, E: 2, K: 3})
		}},
		{"RouterBackward: IDs is fp32, want int32", func(s device.Stream) {
			op.Do(d, s, op.RouterBackward{DLogits: f, Logits: f, IDs: f, DWeights: f, T: 1, E: 4, K: 2})
		}},
		{"SortByExpert: 3 pairs are not 2 for each token", func(s device.Stream) {
			op.Do(d, s, op.SortByExpert{IDs: ints, Order: ints, Rows: ints, Offsets: ints, N: 3, K: 2, E: 1})
		}},
		{"CrossEntropy: Losses is bf16, want fp32", func(s device.Stream) {
			op.Do(d, s, op.CrossEntropy{Logits: f, Targets: ints, Losses: h, T: 2, V: 4})
		}},
		{"CrossEntropyShard: LSE holds 0 elements, want 2", func(s device.Stream) {
			op.Do(d, s, op.CrossEntropyShard{Logits: f, Targets: ints, Losses: f, T: 2, V: 4})
		}},
		{"Convert: Src is int32, want fp32 or bf16", func(s device.Stream) { op.Do(d, s, op.Convert{Dst: f, Src: ints, N: 1}) }},
	})
}
