package op

import (
	"testing"

	"mt/device"
)

// TestLoad: LoadOf gives an operation the same shape as Work does, at least the FLOPs that Work
// counts, and does not allocate.
func TestLoad(t *testing.T) {
	a := AttentionShape{Seqs: 2, TQ: 10, TK: 10, MaxQ: 5, MaxK: 5, Heads: 4, KVHeads: 2, Dim: 8}
	short := a
	short.Window = 2
	delta := DeltaShape{T: 65, KeyHeads: 1, Heads: 2, KeyDim: 3, ValueDim: 5}
	byChannel := delta
	byChannel.KeyHeads, byChannel.ByChannel = 2, true
	for _, c := range []struct {
		o     device.Op
		shape string
		flops float64
		dtype device.DType
		bytes int64
	}{
		{&MatMul{M: 3, N: 5, K: 7, A: bf16(1), B: bf16(1), D: f32(1)}, "3×5×7 AB", 2 * 3 * 5 * 7, device.BF16, 2*(21+35) + 4*15},
		{&MatMul{M: 3, N: 5, K: 7, A: f32(1), B: f32(1), D: f32(1), TransB: true, Ragged: true}, "≤4×5×7 ABᵀ", 2 * 3 * 5 * 7, device.F32, 4 * (21 + 35 + 15)},
		{&MatMul{M: 3, N: 5, K: 7, A: f32(1), B: f32(1), D: f32(1), TransA: true, Ragged: true}, "3×5×≤8 AᵀB", 2 * 3 * 5 * 7, device.F32, 4 * (21 + 35 + 15)},
		{&MatMul{M: 3, N: 5, K: 7, A: bf16(1), B: bf16(1), C: f32(1), D: f32(1), Batch: Batch{N: 4}}, "4 of 3×5×7 AB", 4 * 2 * 3 * 5 * 7, device.BF16, 4 * (2*(21+35) + 8*15)},
		{&Attention{AttentionShape: a, Q: bf16(1)}, "2 seqs, 4 heads of 8", 2 * 2 * 10 * 5 * 32, device.BF16, 2 * (2*10*32 + 2*10*16)},
		{&Attention{AttentionShape: short, Q: f32(1)}, "2 seqs, 4 heads of 8", 2 * 2 * 10 * 2 * 32, device.F32, 4 * (2*10*32 + 2*10*16)},
		{&AttentionBackward{AttentionShape: a, Q: bf16(1)}, "2 seqs, 4 heads of 8", 7 * 2 * 10 * 5 * 32, device.BF16, 2 * (4*10*32 + 4*10*16)},
		{&GatedDelta{DeltaShape: delta, QKV: bf16(1)}, "65 tokens, 2 heads of 3 by 5", delta.FLOPs(), device.BF16, 2 * 65 * (16 + 10 + 2*2)},
		{&GatedDeltaBackward{DeltaShape: delta, QKV: f32(1)}, "65 tokens, 2 heads of 3 by 5", 3 * delta.FLOPs(), device.F32, 4*65*(2*16+10+4*2) + 4*2*2*3*5},
		{&GatedDelta{DeltaShape: byChannel, QKV: bf16(1)}, "65 tokens, 2 heads of 3 by 5, by channel", delta.FLOPs(), device.BF16, 2 * 65 * (22 + 10 + 2 + 6)},
		{&ShortConv{T: 2, C: 256, X: bf16(1)}, "2.0 KiB", 0, device.F32, 2 * 2 * 2 * 256},
	} {
		l := LoadOf(c.o)
		if l.Shape.String() != c.shape || l.FLOPs != c.flops || l.DType != c.dtype || l.Bytes != c.bytes {
			t.Errorf("%s: %q, %+v", c.o.Name(), l.Shape, l)
		}
		if w, ok := c.o.(Worker); ok {
			if shape, flops := w.Work(); shape != c.shape || flops > l.FLOPs {
				t.Errorf("%s: work %q, %v FLOPs, of at most %v", c.o.Name(), shape, flops, l.FLOPs)
			}
		}
		if n := testing.AllocsPerRun(10, func() { l = LoadOf(c.o) }); n > 0 {
			t.Errorf("%s: %v allocations", c.o.Name(), n)
		}
	}
	if s := (Shape{}).String(); s != "" {
		t.Errorf("no shape is %q", s)
	}
}
