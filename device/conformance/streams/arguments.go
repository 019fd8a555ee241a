package streams

import (
	"testing"

	"mt/device"
)

// Every operation looks at its arguments.
func badArguments(t *testing.T, d rig) {
	m := Alloc(t, d, 4096)
	f, h, ints := m.Tensor(device.F32, 0, 64), m.Tensor(device.BF16, 512, 64), m.Tensor(device.I32, 1024, 8)
	o := d.Ops()
	shape := device.AttentionShape{CuQ: ints, CuK: ints, Seqs: 1, TQ: 1, TK: 1, MaxQ: 1, MaxK: 1, Heads: 1, KVHeads: 1, Dim: 4}
	BadArguments(t, d, []BadCall{
		{"MatMul: C is fp32, want bf16", func(s device.Stream) {
			o.MatMul(s, device.MatMul{M: 1, N: 1, K: 1, A: h, B: h, D: h, C: f})
		}},
		{"AddBiasGrad: an extent is negative", func(s device.Stream) { o.AddBiasGrad(s, f, f, -1, 2) }},
		{"RMSNorm: Y is bf16, want fp32", func(s device.Stream) {
			o.RMSNorm(s, device.RMSNorm{Y: h, X: f, W: f, Rows: 1, Groups: 1, Dim: 4, XStride: 4, YStride: 4})
		}},
		{"RMSNormBackward: with Add, DX may not be DY", func(s device.Stream) {
			o.RMSNormBackward(s, device.RMSNormBackward{DX: f, DY: f, X: f, W: f, DW: f, RStd: f, Rows: 1, Groups: 1, Dim: 4, Add: true})
		}},
		{"RoPE: Pos holds 0 elements, want 1", func(s device.Stream) {
			o.RoPE(s, device.RoPE{X: f, Cos: f, Sin: f, T: 1, Heads: 1, Dim: 4, Rotary: 4, Stride: 4})
		}},
		{"Attention: 3 heads do not share 2 key heads evenly", func(s device.Stream) {
			o.Attention(s, device.Attention{AttentionShape: device.AttentionShape{Heads: 3, KVHeads: 2}})
		}},
		{"AttentionBackward: DK holds 0 elements, want 4", func(s device.Stream) {
			o.AttentionBackward(s, device.AttentionBackward{AttentionShape: shape, Q: f, K: f, V: f, O: f, DO: f, DQ: f})
		}},
		{"GLU: gu is int32, want fp32 or bf16", func(s device.Stream) { o.GLU(s, device.SiLU, f, ints, 1, 2) }},
		{"GLUBackward: dgu holds 8 elements, want 64", func(s device.Stream) {
			o.GLUBackward(s, device.SiLU, f.Slice(0, 8), f, f, f, 4, 8)
		}},
		{"Scale: x is int32, want fp32 or bf16", func(s device.Stream) { o.Scale(s, ints, 1, 2) }},
		{"GatherRows: index is fp32, want int32", func(s device.Stream) { o.GatherRows(s, f, f, f, 1, 4) }},
		{"ScatterAddRows: start is fp32, want int32", func(s device.Stream) { o.ScatterAddRows(s, f, f, f, ints, 1, 2, 4) }},
		{"ScaleRows: Index is fp32, want int32", func(s device.Stream) {
			o.ScaleRows(s, device.ScaleRows{X: f, W: f, Index: f, T: 1, C: 4, P: 1})
		}},
		{"ScaleRowsBackward: DY is bf16, want fp32", func(s device.Stream) {
			o.ScaleRowsBackward(s, device.ScaleRowsBackward{Y: f, DY: h, W: f, DW: f, Index: ints, T: 1, C: 4, P: 1})
		}},
		{"AddRows: dst is bf16, want fp32", func(s device.Stream) { o.AddRows(s, h, h, ints, 1, 1, 4) }},
		{"Router: 3 of 2 experts are chosen: want 1 to 2", func(s device.Stream) {
			o.Router(s, device.Router{Logits: f, IDs: ints, Weights: f, T: 1, E: 2, K: 3})
		}},
		{"RouterBackward: IDs is fp32, want int32", func(s device.Stream) {
			o.RouterBackward(s, device.RouterBackward{DLogits: f, Logits: f, IDs: f, DWeights: f, T: 1, E: 4, K: 2})
		}},
		{"SortByExpert: 3 pairs are not 2 for each token", func(s device.Stream) {
			o.SortByExpert(s, device.SortByExpert{IDs: ints, Order: ints, Rows: ints, Offsets: ints, N: 3, K: 2, E: 1})
		}},
		{"CrossEntropy: Losses is bf16, want fp32", func(s device.Stream) {
			o.CrossEntropy(s, device.CrossEntropy{Logits: f, Targets: ints, Losses: h, T: 2, V: 4})
		}},
		{"CrossEntropyShard: LSE holds 0 elements, want 2", func(s device.Stream) {
			o.CrossEntropyShard(s, device.CrossEntropyShard{Logits: f, Targets: ints, Losses: f, T: 2, V: 4})
		}},
		{"Convert: src is int32, want fp32 or bf16", func(s device.Stream) { o.Convert(s, f, ints, 1) }},
	})
}
