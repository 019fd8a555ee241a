package appraise

import (
	"fmt"
	"strings"

	"mt/device"
	"mt/device/op"
)

// rope returns the operation that rotates the heads of all tokens (rotary embedding).
func (z Size) rope(r *rig, dt device.DType) device.Op {
	T, C, dim := z.Tokens, z.Width, z.Width/z.Heads
	return &op.RoPE{X: r.random(dt, T*C), Cos: r.random(device.F32, T*dim/2), Sin: r.random(device.F32, T*dim/2),
		Pos: r.integers(T, func(i int) int { return i }), T: T, Heads: z.Heads, Dim: dim, Rotary: dim, Stride: C}
}

// elements returns cases of operations that compute each element by itself, such as GLU, and of
// operations that only move elements.
func (z Size) elements(dt device.DType) []Case {
	T, C, F := z.Tokens, z.Width, z.MLP
	table := func(rows, columns int) string { return fmt.Sprintf("%d × %d, %s", rows, columns, dt) }
	glu := func(r *rig) device.Op {
		return &op.GLU{Y: r.random(dt, T*F), GU: r.random(dt, 2*T*F), T: T, F: F}
	}
	gluBackward := func(r *rig) device.Op {
		gu := r.random(dt, 2*T*F)
		return &op.GLUBackward{DGU: gu, Y: r.random(dt, T*F), DY: r.random(dt, T*F), GU: gu, T: T, F: F}
	}
	other := device.F32 + device.BF16 - dt
	return []Case{
		{Name: "RoPE", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op { return z.rope(r, dt) }},
		{Name: "GLU", Shape: table(T, F), DType: dt, make: glu},
		{Name: "GLUBackward", Shape: table(T, F), DType: dt, make: gluBackward},
		{Name: "XIELU", Shape: table(T, F), DType: dt, make: func(r *rig) device.Op {
			return &op.XIELU{Y: r.random(dt, T*F), X: r.random(dt, T*F), Alpha: r.random(device.F32, 2), T: T, F: F}
		}},
		{Name: "XIELUBackward", Shape: table(T, F), DType: dt, make: func(r *rig) device.Op {
			x, dy := r.random(dt, T*F), r.random(dt, T*F)
			return &op.XIELUBackward{DX: x, Y: dy, DY: dy, X: x, Alpha: r.random(device.F32, 2), DAlpha: r.random(device.F32, 2), T: T, F: F}
		}},
		{Name: "AddBiasGrad", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op {
			return &op.AddBiasGrad{DB: r.random(device.F32, C), DY: r.random(dt, T*C), T: T, N: C}
		}},
		{Name: "Sinks", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op {
			return &op.Sinks{O: r.random(dt, T*C), LSE: r.random(device.F32, z.Heads*T), Sinks: r.random(device.F32, z.Heads), T: T, Heads: z.Heads, Dim: C / z.Heads}
		}},
		{Name: "SinksGrad", Shape: table(T, z.Heads), DType: dt, make: func(r *rig) device.Op {
			return &op.SinksGrad{DSinks: r.random(device.F32, z.Heads), LSE: r.random(device.F32, z.Heads*T), Delta: r.random(device.F32, z.Heads*T),
				Sinks: r.random(device.F32, z.Heads), T: T, Heads: z.Heads}
		}},
		{Name: "Convert", Shape: table(T, C) + " to " + other.String(), DType: dt, make: func(r *rig) device.Op {
			return &op.Convert{Dst: r.random(other, T*C), Src: r.random(dt, T*C), N: int64(T * C)}
		}},
		{Name: "Scale", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op { return &op.Scale{X: r.random(dt, T*C), N: int64(T * C), Factor: 0.5} }},
		{Name: "DivideByNorm", Shape: table(C, C), DType: dt, make: func(r *rig) device.Op { return &op.DivideByNorm{X: r.random(dt, C*C), N: int64(C * C), Eps: 1e-7} }},
		{Name: "CopyColumns", Shape: table(T, C/8) + " of longer rows", DType: dt, make: func(r *rig) device.Op {
			return &op.CopyColumns{Dst: r.random(dt, T*C/8), Src: r.random(dt, T*C), T: T, C: C / 8, DstStride: C / 8, SrcStride: C}
		}},
		{Name: "CopyHeads", Shape: table(T, C) + " with zeros behind heads", DType: dt, make: func(r *rig) device.Op {
			dim := C / z.Heads
			return &op.CopyHeads{Dst: r.random(dt, 2*T*C), Src: r.random(dt, T*C), T: T, Heads: z.Heads, C: dim, Zeros: dim, DstStride: 2 * C, DstHead: 2 * dim,
				SrcStride: C, SrcHead: dim}
		}},
		{Name: "SumHeads", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op {
			dim := C / z.Heads
			return &op.SumHeads{Dst: r.random(dt, T*dim), Src: r.random(dt, T*C), T: T, Heads: z.Heads, C: dim, DstStride: dim, SrcStride: C, SrcHead: dim}
		}},
		{Name: "WeightedSum", Shape: table(C, C), DType: dt, make: func(r *rig) device.Op {
			x := r.random(dt, C*C)
			return &op.WeightedSum{D: x, X: x, Y: r.random(device.F32, C*C), N: int64(C * C), A: 1, B: 2}
		}},
	}
}

func (z Size) losses(dt device.DType) []Case {
	T, V := z.Tokens/8, z.Vocabulary
	shape := fmt.Sprintf("%d × %d, %s", T, V, dt)
	targets := func(r *rig) device.Tensor { return r.integers(T, func(i int) int { return i * 7919 % V }) }
	shard := func(gradient bool) Case {
		of := shape + ", a shard"
		if gradient {
			of += "'s gradient"
		}
		return Case{Name: "CrossEntropyShard", Shape: of, DType: dt, make: func(r *rig) device.Op {
			return &op.CrossEntropyShard{Logits: r.random(dt, T*V), Targets: targets(r), LSE: r.random(device.F32, T), Losses: r.random(device.F32, T), T: T, V: V,
				Scale: 0.1, First: !gradient, Gradient: gradient}
		}}
	}
	return []Case{{Name: "CrossEntropy", Shape: shape, DType: dt, make: func(r *rig) device.Op {
		return &op.CrossEntropy{Logits: r.random(dt, T*V), Targets: targets(r), Losses: r.random(device.F32, T), T: T, V: V, Scale: 0.1}
	}}, shard(false), shard(true), {Name: "PreferenceWeights", Shape: fmt.Sprintf("%d tokens, 8 pairs", z.Tokens), DType: dt, make: func(r *rig) device.Op {
		n, one := z.Tokens, r.random(device.F32, z.Tokens)
		return &op.PreferenceWeights{Weights: one, Losses: one, Targets: r.integers(n, func(i int) int { return i % 7 }), Reference: r.random(device.F32, 16),
			Cu: r.integers(17, func(i int) int { return i * n / 16 }), T: n, Pairs: 8, Loss: op.PreferenceLoss{Kind: op.Sigmoid, Beta: 0.1}}
	}}}
}

// rows returns cases of operations that read or write rows named by an index, such as the
// embedding.
func (z Size) rows(dt device.DType) []Case {
	T, C, U := z.Tokens, z.Width, z.Vocabulary/8
	shape := fmt.Sprintf("%d × %d, %s", T, C, dt)
	permuted := func(r *rig, n int) device.Tensor { return r.integers(n, func(i int) int { return (i*7919 + 3) % n }) }
	return []Case{
		{Name: "GatherRows", Shape: shape, DType: dt, make: func(r *rig) device.Op {
			return &op.GatherRows{Dst: r.random(dt, T*C), Src: r.random(dt, U*C), Index: r.integers(T, func(i int) int { return i * 7919 % U }), T: T, C: C}
		}},
		{Name: "AddNoise", Shape: shape, DType: dt, make: func(r *rig) device.Op {
			return &op.AddNoise{X: r.random(dt, T*C), Cu: r.integers(9, func(i int) int { return i * T / 8 }), T: T, C: C, Seqs: 8, Step: 1, Scale: 1}
		}},
		{Name: "ScatterAddRows", Shape: shape, DType: dt, make: func(r *rig) device.Op {
			return &op.ScatterAddRows{DRows: r.random(device.F32, U*C), DY: r.random(dt, T*C), Start: r.integers(U+1, func(i int) int { return i * T / U }),
				Pos: permuted(r, T), U: U, T: T, C: C}
		}},
		{Name: "AddRows", Shape: shape, DType: dt, make: func(r *rig) device.Op {
			return &op.AddRows{Dst: r.random(device.F32, T*C), Src: r.random(dt, T*C), Index: permuted(r, T), U: T, T: T, C: C}
		}},
		{Name: "AddRows", Shape: shape + ", a bias", DType: dt, make: func(r *rig) device.Op {
			return &op.AddRows{Dst: r.random(device.F32, T*C), Src: r.random(dt, T*C), Index: permuted(r, T), U: T, T: T, C: C,
				Bias: r.random(device.F32, C), W: r.random(device.F32, T), Pairs: permuted(r, T), P: T}
		}},
		{Name: "WeightedBiasGrad", Shape: shape, DType: dt, make: func(r *rig) device.Op {
			return &op.WeightedBiasGrad{DB: r.random(device.F32, C), DW: r.random(device.F32, T), DY: r.random(dt, T*C), B: r.random(device.F32, C),
				W: r.random(device.F32, T), Index: permuted(r, T), T: T, C: C, P: T}
		}},
		{Name: "ScaleRows", Shape: shape, DType: dt, make: func(r *rig) device.Op {
			return &op.ScaleRows{X: r.random(dt, T*C), W: r.random(device.F32, T), Index: permuted(r, T), T: T, C: C, P: T}
		}},
		{Name: "ScaleRowsBackward", Shape: shape, DType: dt, make: func(r *rig) device.Op {
			return &op.ScaleRowsBackward{DY: r.random(dt, T*C), Y: r.random(dt, T*C), W: r.random(device.F32, T), DW: r.random(device.F32, T),
				Index: permuted(r, T), T: T, C: C, P: T}
		}},
	}
}

// experts returns cases of the operations that choose experts and sort tokens by expert.
func (z Size) experts() []Case {
	const chosen = 8
	T, E := z.Tokens, z.Experts
	shape := fmt.Sprintf("%d tokens, %d of %d experts", T, chosen, E)
	ids := func(r *rig) device.Tensor {
		return r.integers(T*chosen, func(i int) int { return (i/chosen*5 + i%chosen*(E/chosen)) % E })
	}
	return []Case{
		{Name: "Router", Shape: shape, DType: device.F32, make: func(r *rig) device.Op {
			return &op.Router{Logits: r.random(device.F32, T*E), IDs: ids(r), Weights: r.random(device.F32, T*chosen), ProbSum: r.random(device.F32, E), T: T, E: E, K: chosen, Normalize: true}
		}},
		{Name: "RouterBackward", Shape: shape, DType: device.F32, make: func(r *rig) device.Op {
			return &op.RouterBackward{DLogits: r.random(device.F32, T*E), Logits: r.random(device.F32, T*E), IDs: ids(r), DWeights: r.random(device.F32, T*chosen), T: T, E: E, K: chosen, Normalize: true}
		}},
		{Name: "SortByExpert", Shape: shape, DType: device.F32, once: true, make: func(r *rig) device.Op {
			n := T * chosen
			return &op.SortByExpert{IDs: ids(r), Order: r.integers(n, func(int) int { return 0 }), Rows: r.integers(n, func(int) int { return 0 }),
				Offsets: r.integers(E+1, func(int) int { return 0 }), N: n, K: chosen, E: E}
		}},
	}
}

// recurrences returns cases of the operations that carry a state from token to token (gated delta
// rule, state space scan), and of the short convolution before them.
func (z Size) recurrences(dt device.DType) []Case {
	T, C := z.Tokens, z.Width
	table := func(rows, columns int) string { return fmt.Sprintf("%d × %d, %s", rows, columns, dt) }
	// One block in each column of a state goes from chunk to chunk; a block has 32 columns.
	columns := func(kernel string) (int, int) {
		if strings.Contains(kernel, "states") {
			return 1, C / 32
		}
		return 1, 1
	}
	shape := map[bool]string{false: table(T, C), true: table(T, C) + ", decays by channel"}
	delta := func(byChannel bool) Case {
		return Case{Name: "GatedDelta", Shape: shape[byChannel], DType: dt, alike: columns, make: func(r *rig) device.Op {
			a := z.delta(r)
			a.ByChannel = byChannel
			return &op.GatedDelta{DeltaShape: a, O: r.random(dt, T*C), QKV: r.random(dt, T*a.Width()), Gates: r.random(dt, T*a.GateStride), A: r.random(dt, T*a.Decays()),
				ALog: r.random(device.F32, a.Heads), DtBias: r.random(device.F32, a.Decays()), States: r.random(device.F32, a.StatesLen())}
		}}
	}
	backward := func(byChannel bool) Case {
		return Case{Name: "GatedDeltaBackward", Shape: shape[byChannel], DType: dt, alike: columns, make: func(r *rig) device.Op {
			a := z.delta(r)
			a.ByChannel = byChannel
			heads, decays, qkv := r.random(device.F32, a.Heads), r.random(device.F32, a.Decays()), r.random(dt, T*a.Width())
			return &op.GatedDeltaBackward{DeltaShape: a, DQKV: r.random(dt, T*a.Width()), DGates: r.random(dt, T*a.GateStride), DA: r.random(dt, T*a.Decays()),
				DALog: heads, DDtBias: decays, DO: r.random(dt, T*C), QKV: qkv, Gates: r.random(dt, T*a.GateStride), A: r.random(dt, T*a.Decays()), ALog: heads,
				DtBias: decays, States: r.random(device.F32, a.StatesLen())}
		}}
	}
	return []Case{
		delta(false), delta(true), backward(false), backward(true),
		{Name: "SSD", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op {
			a := z.ssd(r)
			heads := r.random(device.F32, a.Heads)
			return &op.SSD{SSDShape: a, O: r.random(dt, T*C), XBC: r.random(dt, T*a.Width()), Dt: r.random(dt, T*a.DtStride), ALog: heads, DtBias: heads, D: heads,
				States: r.random(device.F32, a.StatesLen())}
		}},
		{Name: "SSDBackward", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op {
			a := z.ssd(r)
			heads, sums := r.random(device.F32, a.Heads), r.random(device.F32, a.Heads)
			return &op.SSDBackward{SSDShape: a, DXBC: r.random(dt, T*a.Width()), DDt: r.random(dt, T*a.DtStride), DALog: sums, DDtBias: sums, DD: sums,
				DStates: r.random(device.F32, a.StatesLen()), DO: r.random(dt, T*C), XBC: r.random(dt, T*a.Width()), Dt: r.random(dt, T*a.DtStride), ALog: heads,
				DtBias: heads, D: heads, States: r.random(device.F32, a.StatesLen())}
		}},
		{Name: "ShortConv", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op {
			return &op.ShortConv{Y: r.random(dt, T*C), X: r.random(dt, T*C), W: r.random(device.F32, 4*C), Cu: r.integers(2, func(i int) int { return i * T }), Seqs: 1,
				T: T, C: C, Taps: 4, XStride: C}
		}},
		{Name: "ShortConvBackward", Shape: table(T, C), DType: dt, make: func(r *rig) device.Op {
			return &op.ShortConvBackward{DX: r.random(dt, T*C), DW: r.random(device.F32, 4*C), DY: r.random(dt, T*C), X: r.random(dt, T*C), W: r.random(device.F32, 4*C),
				Cu: r.integers(2, func(i int) int { return i * T }), Seqs: 1, T: T, C: C, Taps: 4, XStride: C, DXStride: C}
		}},
	}
}

func (z Size) ssd(r *rig) op.SSDShape {
	dim := min(z.Width/z.Heads, op.MostSSDHead)
	heads := z.Width / dim
	return op.SSDShape{Cu: r.integers(2, func(i int) int { return i * z.Tokens }), Seqs: 1, T: z.Tokens, Groups: 1, Heads: heads, HeadDim: dim, StateDim: dim,
		DtStride: heads, DtMax: 1}
}

func (z Size) delta(r *rig) op.DeltaShape {
	dim := min(z.Width/z.Heads, op.MostDeltaDim)
	heads := z.Width / dim
	return op.DeltaShape{Cu: r.integers(2, func(i int) int { return i * z.Tokens }), Seqs: 1, T: z.Tokens, KeyHeads: heads, Heads: heads, KeyDim: dim, ValueDim: dim,
		GateStride: 2 * heads}
}
