package kernels_test

import (
	"bytes"
	"testing"

	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// TestGradientsInAnyOrder: the kernels whose blocks wait for each other give the same bits,
// whichever blocks begin first, however many run at a time, and however they take turns. Splitting
// heads over launches changes no bit either. No block waits forever.
func TestGradientsInAnyOrder(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, which runs the same interpreter in TestOp")
	}
	for i, c := range []attentionCase{
		{queries: []int{300, 140}, heads: 4, kvHeads: 2, dim: 64},
		{queries: []int{400, 130}, keys: []int{520, 130}, heads: 1, kvHeads: 1, dim: 64, window: 200},
		{queries: []int{300, 140}, heads: 4, kvHeads: 2, dim: 64},
		{queries: []int{400, 130}, keys: []int{520, 130}, heads: 1, kvHeads: 1, dim: 128, window: 200},
	} {
		dev := newRig()
		dev.sm90a = i >= 2
		r := newAttentionRun(t, dev, device.BF16, c)
		wide, narrow := c.heads*c.dim, c.kvHeads*c.dim
		q, _ := r.random(r.o.TQ, wide, wide)
		k, _ := r.random(r.tk, narrow, narrow)
		v, _ := r.random(r.tk, narrow, narrow)
		do, _ := r.random(r.o.TQ, wide, wide)
		rows := r.o.TQ * c.heads
		o, lse, delta := r.alloc(r.dt, rows*c.dim, 0), r.alloc(device.F32, rows, 0), r.alloc(device.F32, rows, 0)
		kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, LSE: lse, Q: q, K: k, V: v, QStride: wide, KStride: narrow})
		sums := r.alloc(device.F32, r.shape.SumsLen(), 0)
		var first [3][]byte
		for i, blocks := range []int{0, 2, 3, 5, 16, 16} {
			r.dev.blocks, r.dev.most = blocks, float64(i%2) // with 1 each key head is a launch of its own
			dq, dk, dv := r.alloc(r.dt, r.o.TQ*wide, 0), r.alloc(r.dt, r.tk*narrow, 0), r.alloc(r.dt, r.tk*narrow, 0)
			kernels.AttentionBackward(r.s, &op.AttentionBackward{AttentionShape: r.shape, DQ: dq, DK: dk, DV: dv, DO: do, O: o, LSE: lse,
				Q: q, K: k, V: v, QStride: wide, KStride: narrow, DQStride: wide, DKStride: narrow, Delta: delta, Sums: sums})
			r.ok()
			for g, d := range []device.Tensor{dq, dk, dv} {
				b := bytes.Clone(r.dev.bytes(d.Mem()))
				if first[g] != nil && !bytes.Equal(first[g], b) {
					t.Errorf("%v: gradient %d of %d blocks at a time differs", c, g, blocks)
				}
				first[g] = b
			}
		}
	}
}
